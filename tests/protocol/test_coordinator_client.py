"""The coordinator's client against a real server that checks signatures as a coordinator does."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest
from eth_utils import keccak
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api
from protocol.wire.artifact_blob import head_of
from protocol.wire.auth import Audience, recover_request
from protocol.wire.rules import encode_rules
from tests.coordinator.swarm import RULES

CHAIN_ID = 31337
ROUNDS = "0x" + "11" * 20
RUN = 3
ROOT = bytes(range(32))
HEX = "0x" + ROOT.hex()
HEAD = head_of(bytes(32), b"parquet")
RULES_JSON = encode_rules(RULES)
ASSIGNMENT = api.Assignment(
    round=4,
    run=1,
    step=3,
    policy_version=2,
    beacon=HEX,
    open_block=10,
    deadline=2_000_000_000,
    assignments="0x0000000700",
    jobs=[0],
)


class Coordinator:
    """Answers every path of the API, refuses whatever is not signed by ``address``, and remembers what came."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.received: list[tuple[str, bytes]] = []
        self.nonces: set[int] = set()

    def app(self) -> Starlette:
        signed = {
            ("POST", "/heartbeats"): api.HeartbeatReply(state="alive", reasons=[]),
            ("GET", "/nodes/7/assignments"): api.Assignments(rounds=[ASSIGNMENT]),
            ("PUT", "/rounds/4/jobs/0/artifact"): api.ArtifactReceipt(root=HEX),
            ("POST", "/rounds/4/submissions"): api.SubmissionReceipt(round=4, jobs=[0]),
            ("PUT", f"/evidence/{HEX}"): api.EvidenceReceipt(root=HEX),
        }
        public = {
            "/health": api.Health(ok=True, run=RUN, head=12).model_dump_json().encode(),
            f"/rules/0x{keccak(RULES_JSON).hex()}": RULES_JSON,
            f"/rules/{HEX}": RULES_JSON,
            f"/artifacts/0x{HEAD.root.hex()}": HEAD.packed + b"parquet",
            f"/artifacts/{HEX}": HEAD.packed + b"parquet",
            f"/evidence/{HEX}": b"evidence",
            "/status": b'{"surprise": 1}',
        }
        routes = [Route(path, self._checked(body), methods=[method]) for (method, path), body in signed.items()]
        routes += [Route(path, _answer(data)) for path, data in public.items()]
        return Starlette(routes=routes)

    def _checked(self, body: api.Body):
        async def endpoint(request):
            data = await request.body()
            path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            args = (request.headers, Audience(CHAIN_ID, ROUNDS, RUN), request.method, path, int(time.time()))
            try:
                signed = recover_request(*args)
                if signed.body != keccak(data):
                    raise Rejected("another body was signed")
            except Rejected as error:
                return Response(api.ErrorBody(error=str(error)).model_dump_json(), 401)
            if signed.address != self.address or signed.nonce in self.nonces:
                return Response(api.ErrorBody(error="this key is bound to no node").model_dump_json(), 403)
            self.nonces.add(signed.nonce)
            self.received.append((path, data))
            return Response(body.model_dump_json())

        return endpoint


def _answer(data: bytes):
    async def endpoint(request):
        return Response(data)

    return endpoint


@pytest.fixture
def coordinator(signer):
    return Coordinator(signer.address)


@pytest.fixture
def client(coordinator, serve, signer):
    with closing(CoordinatorClient(serve(coordinator.app()).url, signer, CHAIN_ID, ROUNDS, RUN)) as client:
        yield client


def submission() -> api.SubmissionRequest:
    return api.SubmissionRequest(
        node=7, beacon=HEX, leaves="0x" + "00" * 41, uri="http://host/artifacts/", signature="0x" + "00" * 65
    )


def test_an_offer_is_left_out_for_a_coordinator_that_does_not_know_it(serve, signer):
    got = []

    async def endpoint(request):
        beat = json.loads(await request.body())
        got.append(beat)
        if "offer" in beat:
            error = api.ErrorBody(error="Heartbeat: offer: Extra inputs are not permitted")
            return Response(error.model_dump_json(), 422)
        return Response(api.HeartbeatReply(state="alive").model_dump_json())

    url = serve(Starlette(routes=[Route("/heartbeats", endpoint, methods=["POST"])])).url
    with closing(CoordinatorClient(url, signer, CHAIN_ID, ROUNDS, RUN)) as client:
        assert client.heartbeat(api.Heartbeat(node=7, version=None, offer=api.Offer())).state == "alive"
    assert [sorted(beat) for beat in got] == [
        ["available", "hardware", "node", "offer", "version"],
        ["available", "hardware", "node", "version"],
    ]


def test_every_signed_path_is_answered_to_the_right_key(client, coordinator):
    assert client.heartbeat(api.Heartbeat(node=7, version=2)).state == "alive"
    assert client.assignments(7, wait_seconds=1) == [ASSIGNMENT]
    assert client.upload(4, 0, b"bytes") == ROOT
    assert client.submit(4, submission()).jobs == [0]
    client.put_evidence(ROOT, b"evidence")
    assert [path for path, _ in coordinator.received] == [
        "/heartbeats",
        "/nodes/7/assignments?wait=1",
        "/rounds/4/jobs/0/artifact",
        "/rounds/4/submissions",
        f"/evidence/{HEX}",
    ]
    assert coordinator.received[2][1] == b"bytes"


def test_public_paths_need_no_key(coordinator, serve):
    with closing(CoordinatorClient(serve(coordinator.app()).url + "/")) as client:
        assert client.health().head == 12
        assert client.rules(keccak(RULES_JSON)) == RULES
        assert client.artifact(HEAD.root) == b"parquet"
        with pytest.raises(Rejected, match="not those of the artifact"):
            client.artifact(ROOT)
        assert client.evidence(ROOT) == b"evidence"
        assert client.artifacts_uri.endswith("/artifacts/")
        with pytest.raises(Misconfigured, match="node key"):
            client.assignments(7)


def test_a_refusal_carries_the_coordinators_own_sentence(coordinator, serve, other_signer):
    with (
        closing(CoordinatorClient(serve(coordinator.app()).url, other_signer, CHAIN_ID, ROUNDS, RUN)) as client,
        pytest.raises(Rejected, match="bound to no node"),
    ):
        client.heartbeat(api.Heartbeat(node=7, version=None))


def test_a_key_of_another_chain_is_refused(coordinator, serve, signer):
    with (
        closing(CoordinatorClient(serve(coordinator.app()).url, signer, 1, ROUNDS, RUN)) as client,
        pytest.raises(Rejected),
    ):
        client.upload(4, 0, b"bytes")


def test_requests_are_signed_for_the_run_given_or_else_for_the_one_that_the_coordinator_drives(
    coordinator, serve, signer
):
    url = serve(coordinator.app()).url
    with closing(CoordinatorClient(url, signer, CHAIN_ID, ROUNDS)) as client:
        assert client.upload(4, 0, b"bytes") == ROOT
    with (
        closing(CoordinatorClient(url, signer, CHAIN_ID, ROUNDS, RUN + 1)) as client,
        pytest.raises(Rejected, match="coordinator of run 4, this is the one of run 3"),
    ):
        client.upload(4, 0, b"bytes")


def test_rules_that_do_not_hash_to_what_was_asked_for_are_rejected(client):
    with pytest.raises(Rejected, match="as on chain"):
        client.rules(ROOT)


def test_an_answer_in_another_form_is_rejected(client):
    with pytest.raises(Rejected, match="StatusReport"):
        client.status()
    with pytest.raises(Rejected, match="sent more than 75 bytes"):
        client.artifact(ROOT, limit=3)


@pytest.mark.parametrize(
    ("status", "body", "error", "sentence"),
    [
        (503, b'{"error":"the store is down"}', Unavailable, "the store is down"),
        (500, b"oops", Unavailable, "500"),
        (429, b'{"error":"too many requests"}', Unavailable, "too many"),
        (404, b'{"error":"there is no run 1"}', Rejected, "no run 1"),
        (400, b"<html>", Rejected, "400"),
        (302, b"", Rejected, "302"),
    ],
)
def test_each_status_says_what_to_do(serve, status, body, error, sentence):
    async def endpoint(request):
        return Response(body, status)

    url = serve(Starlette(routes=[Route("/runs/1", endpoint)])).url
    with closing(CoordinatorClient(url)) as client, pytest.raises(error, match=sentence):
        client.run(1)


def test_nobody_there_is_unavailable():
    with (
        closing(CoordinatorClient("http://127.0.0.1:9")) as client,
        pytest.raises(Unavailable, match="does not answer"),
    ):
        client.health()


def test_a_url_without_a_host_is_misconfigured():
    for url in ("localhost:8000", "", "ftp://host"):
        with pytest.raises(Misconfigured):
            CoordinatorClient(url)
