"""Typed client of the coordinator's API: one method per path of ``protocol.wire.api``.

Connection failures, answers that take too long, 408, 429 and 5xx raise `Unavailable`; any other refusal raises
`Rejected` with the coordinator's own message. No method retries: the caller's loop decides.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from http import HTTPStatus
from typing import TypeVar

import httpx
from pydantic import ValidationError

from protocol.certificates import certificate_authorities
from protocol.deadlines import bounded, within
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.transport.http import is_http, pieces, reaching
from protocol.wire import api
from protocol.wire.artifact_blob import HEAD_BYTES, parse_blob
from protocol.wire.auth import Audience, Signer, sign_request
from protocol.wire.canonical import validating
from protocol.wire.rollout import DEFAULT_LIMITS
from protocol.wire.rules import MAX_RULES_BYTES, Rules, decode_rules

REQUEST_SECONDS = 60
"""Validity of a signed request; well under the maximum that a coordinator accepts."""
TIMEOUT_SECONDS = 15.0
"""Longest time for a request, apart from what its and the answer's body take at the lowest speed."""
JSON_BYTES = 1 << 20
STATUS_BYTES = 8 << 20
EVIDENCE_BYTES = 64 << 20
_Body = TypeVar("_Body", bound=api.Body)


class _NotServed(Rejected):
    def __init__(self, message: str, refusal: api.StoreRefusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class _Unreadable(Rejected):
    """The coordinator does not read the body: it is invalid, or of a later version than the coordinator."""


class CoordinatorClient:
    """Client of the coordinator at ``base_url``, signing as ``signer`` for one deployment. Threads may share it.

    Requests are signed for the coordinator of ``run``; None asks the coordinator each time which run it
    drives, and takes the first of several. Without
    a signer only the public paths work.
    """

    def __init__(
        self,
        base_url: str,
        signer: Signer | None = None,
        chain_id: int = 0,
        rounds_address: str = "",
        run: int | None = None,
    ) -> None:
        if not is_http(base_url):
            raise Misconfigured(f"invalid coordinator URL {base_url!r}: expected http(s)://host")
        self.base_url = base_url.rstrip("/")
        self._signer, self._chain_id, self._rounds, self._run = signer, chain_id, rounds_address, run
        self._client = bounded(httpx.Client(verify=certificate_authorities()))

    @property
    def artifacts_uri(self) -> str:
        """URI for submissions: an artifact is at this URI followed by 0x and its root."""
        return f"{self.base_url}/artifacts/"

    def is_at(self, url: str) -> bool:
        """Returns whether this is the client of the coordinator at ``url``."""
        return url.rstrip("/") == self.base_url

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def health(self) -> api.Health:
        """Returns whether the coordinator answers, the run it drives, and the block it has folded."""
        return _parse(api.Health, self._send("GET", "/health"))

    def status(self, details: bool = False) -> api.StatusReport:
        """Returns the live counts of the client's run, or of the first one that the coordinator drives.

        With ``details``, nodes have their offers and the reasons why they are not listed.
        """
        path = f"/status{self._of_run()}"
        path += f"{'&' if '?' in path else '?'}details=true" if details else ""
        return _parse(api.StatusReport, self._send("GET", path, limit=STATUS_BYTES))

    def run(self, run: int) -> api.RunDescription:
        """Returns what a node needs to take part in ``run``."""
        return _parse(api.RunDescription, self._send("GET", f"/runs/{run}"))

    def rules(self, rules_hash: bytes) -> Rules:
        """Returns the rules with this hash; raises `Rejected` for rules that hash to another or are invalid."""
        return decode_rules(self._send("GET", f"/rules/0x{rules_hash.hex()}", limit=MAX_RULES_BYTES), rules_hash)

    def heartbeat(self, heartbeat: api.Heartbeat) -> api.HeartbeatReply:
        """Reports that a node is up; returns its status at the coordinator."""
        plain = heartbeat.model_dump_json(exclude={"offer"}).encode()
        body = plain if heartbeat.offer is None else heartbeat.model_dump_json().encode()
        try:
            answer = self._send("POST", "/heartbeats", body, signed=True)
        except _Unreadable:  # by a coordinator of the version before, which knows no offers
            if body == plain:
                raise
            answer = self._send("POST", "/heartbeats", plain, signed=True)
        return _parse(api.HeartbeatReply, answer)

    def assignments(self, node: int, wait_seconds: int = 0) -> list[api.Assignment]:
        """Returns the rounds waiting for the node's work. If there are none, waits up to ``wait_seconds`` for one."""
        path = f"/nodes/{node}/assignments?wait={wait_seconds}"
        return _parse(api.Assignments, self._send("GET", path, signed=True, extra_seconds=wait_seconds)).rounds

    def upload(self, round_id: int, job: int, artifact: bytes) -> bytes:
        """Uploads the Parquet bytes of a job; once this returns they are durable. Returns the root they were given."""
        path = f"/rounds/{round_id}/jobs/{job}/artifact"
        answer = self._send("PUT", path, artifact, signed=True, kind="application/vnd.apache.parquet", extra_seconds=45)
        return _parse(api.ArtifactReceipt, answer).root

    def ask_upload(self, round_id: int, job: int, asked: api.UploadRequest) -> api.UploadTicket:
        """Asks to upload a job's file to the object store; `Rejected` where files are uploaded to the coordinator."""
        body = asked.model_dump_json().encode()
        path = f"/rounds/{round_id}/jobs/{job}/uploads"
        return _parse(api.UploadTicket, self._send("POST", path, body, signed=True))

    def uploaded(self, name: str, wait_seconds: int = 0) -> api.UploadTicket:
        """Tells of an upload that was sent; waits up to ``wait_seconds`` for its examination."""
        path = f"/uploads/{name}?wait={wait_seconds}"
        return _parse(api.UploadTicket, self._send("POST", path, signed=True, extra_seconds=wait_seconds))

    def restore(self, round_id: int, job: int, blob: bytes) -> None:
        """Puts the blob of a submitted job back into a store that lacks it; raises `Rejected` if it does not."""
        answer = self._send("PUT", f"/rounds/{round_id}/jobs/{job}/blob", blob, signed=True, extra_seconds=45)
        _parse(api.ArtifactReceipt, answer)

    def receipt(self, round_id: int, node: int, leaves: bytes) -> api.StoreReceipt:
        """Returns the store's receipt for the uploaded artifacts of packed ``leaves``, its signature unverified."""
        body = api.ReceiptRequest(node=node, leaves=leaves).model_dump_json().encode()
        return _parse(api.StoreReceipt, self._send("POST", f"/rounds/{round_id}/receipts", body, signed=True))

    def submit(self, round_id: int, submission: api.SubmissionRequest) -> api.SubmissionReceipt:
        """Submits signed leaves; once this returns they are durable."""
        body = submission.model_dump_json().encode()
        return _parse(api.SubmissionReceipt, self._send("POST", f"/rounds/{round_id}/submissions", body, signed=True))

    def artifact(self, root: bytes, limit: int = DEFAULT_LIMITS.file_bytes) -> bytes:
        """Returns the Parquet bytes of the artifact ``root``; raises `Rejected` for others, or more than ``limit``."""
        return self.blob(root, HEAD_BYTES + limit)[HEAD_BYTES:]

    def blob(self, root: bytes, limit: int) -> bytes:
        """Returns head and file of the artifact ``root``; raises `Rejected` for others, or more than ``limit``."""
        blob = self._send("GET", f"/artifacts/0x{root.hex()}{self._of_run()}", limit=limit)
        parse_blob(blob, root)
        return blob

    def refusal(self, root: bytes) -> api.StoreRefusal | None:
        """Returns the store's signed statement that it does not serve the artifact ``root``; None if it serves it.

        Raises:
            Rejected: it sends other bytes, or refuses without signing.
        """
        try:
            self.artifact(root)
        except _NotServed as error:
            return error.refusal
        return None

    def put_evidence(self, root: bytes, evidence: bytes) -> None:
        """Publishes an evidence bundle under its root."""
        answer = self._send("PUT", f"/evidence/0x{root.hex()}", evidence, signed=True, extra_seconds=45)
        _parse(api.EvidenceReceipt, answer)

    def evidence(self, root: bytes, limit: int = EVIDENCE_BYTES) -> bytes:
        """Returns the evidence bundle kept under ``root``, unverified; more than ``limit`` raise `Rejected`."""
        return self._send("GET", f"/evidence/0x{root.hex()}", limit=limit)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        signed: bool = False,
        limit: int = JSON_BYTES,
        kind: str = "application/json",
        extra_seconds: float = 0.0,
    ) -> bytes:
        headers = {"Accept-Encoding": "identity"} | ({"Content-Type": kind} if body else {})
        if signed:
            headers |= self._signature(method, path, body)
        timeout = httpx.Timeout(TIMEOUT_SECONDS + extra_seconds, connect=3.0)
        stream = self._client.stream(
            method, self.base_url + path, content=body or None, headers=headers, timeout=timeout
        )
        with (
            within(TIMEOUT_SECONDS + extra_seconds, len(body)) as deadline,
            reaching(f"the coordinator at {self.base_url}"),
            stream as response,
        ):
            answer = deadline.extended(pieces(response, limit, "the coordinator"))
            return _checked(response.status_code, b"".join(answer))

    def _of_run(self) -> str:
        return "" if self._run is None else f"?run={self._run}"

    def _signature(self, method: str, path: str, body: bytes) -> dict[str, str]:
        if self._signer is None:
            raise Misconfigured(f"{method} {path} must be signed: give the coordinator client a node key")
        once = (secrets.randbits(256), int(time.time()) + REQUEST_SECONDS)
        return sign_request(self._signer, self._audience(), method, path, body, *once)

    def _audience(self) -> Audience:
        run = self.health().run if self._run is None else self._run
        return Audience(self._chain_id, self._rounds, run)


def describe_coordinator(url: str) -> str:
    """Asks the coordinator at ``url`` for its health and returns a line about it.

    Raises:
        Unavailable: it does not answer.
        Misconfigured: invalid URL.
    """
    with closing(CoordinatorClient(url)) as client:
        return f"answers, folded block {client.health().head}"


def _checked(status: int, data: bytes) -> bytes:
    """Returns the body of a 2xx answer; raises `Unavailable` or `Rejected` for any other."""
    if 200 <= status < 300:
        return data
    try:
        body = api.ErrorBody.model_validate_json(data)
    except ValidationError:
        body = api.ErrorBody(error=f"the coordinator answered {status} without saying why")
    if status >= 500 or status in (408, 429):
        raise Unavailable(body.error)
    if body.refusal is not None:
        raise _NotServed(body.error, body.refusal)
    raise _Unreadable(body.error) if status == HTTPStatus.UNPROCESSABLE_ENTITY else Rejected(body.error)


def _parse(body: type[_Body], data: bytes) -> _Body:
    with validating(f"the coordinator sent an invalid {body.__name__}"):
        return body.model_validate_json(data)
