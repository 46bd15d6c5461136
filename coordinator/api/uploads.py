"""Uploads of artifacts straight to the object store, each examined before it counts.

    asked ──> open ──node uploads, then tells──> checking ──examined──> stored
                ^                                    ├──nothing there──> open
                └──────────────asks again────────────┴──────────────────> refused

A node sends the file to a name that only it was told, and may send to it again until the URL expires. So what is
examined is read once, whole, and these bytes are what is written under the artifact's root: whatever happens to the
name afterwards does not matter. The store signs URLs for a name and a time, not for a size or a hash: these are checked
here, before the file is read and after. Everything can be done twice, and is, after a crash between two steps.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from eth_hash.auto import keccak
from sqlmodel import col, select

from coordinator.api.artifacts import ArtifactIntake
from coordinator.api.bodies import LEAST_BYTES_PER_SECOND
from coordinator.api.gate import Caller
from coordinator.api.refusals import forbidden, missing, too_large, too_many
from coordinator.blobs import INCOMING
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import GrantRow, RoundRow
from protocol.errors import Misconfigured, Rejected
from protocol.transport.http import NotThere
from protocol.transport.objects import Objects
from protocol.wire.api import UploadRequest, UploadTicket

if TYPE_CHECKING:
    from coordinator.api.precheck import PrecheckQueue

MOST_OPEN = 16
"""Most uploads of one node within ``RECENT_SECONDS`` that are not stored: the store keeps what came to their names."""

RECENT_SECONDS = 3600
"""Time after its expiry for which an upload counts: about as long as what came to its name may be kept."""

LEAST_SECONDS = 60
"""Validity of an upload's URL, besides the time that its file takes at the lowest speed."""

LATE_SECONDS = 60
"""Time after an upload's expiry until which the node may still tell of it: it may have ended just before."""

REORDER_SECONDS = 10.0
"""Time after which an upload's examination is ordered again, as the queue may have lost it; never more often."""


class Uploads:
    """The uploads to ``objects``; None where the store signs no URLs."""

    def __init__(
        self,
        store: Store,
        artifacts: ArtifactIntake,
        objects: Objects | None,
        queue: PrecheckQueue | None,
        most_bytes: int,
    ) -> None:
        self._store, self._artifacts, self._objects, self._queue = store, artifacts, objects, queue
        self._most_bytes = most_bytes

    @classmethod
    def of(
        cls, settings: CoordinatorSettings, store: Store, artifacts: ArtifactIntake, objects: Objects | None
    ) -> Uploads:
        """Returns the uploads of the settings' runs, with a queue where they go to an object store."""
        queue = None
        if objects is not None:
            from coordinator.api.precheck import PrecheckQueue  # most coordinators need no Celery

            queue = PrecheckQueue(settings.redis_url, settings.runs[0])
        return cls(store, artifacts, objects, queue, settings.max_artifact_bytes)

    def close(self) -> None:
        """Closes the connections."""
        if self._queue is not None:
            self._queue.close()

    def attend(self) -> int:
        """Examines uploads until stopped; returns the exit code.

        Raises ``Misconfigured`` where nodes upload to the coordinator itself.
        """
        if self._queue is None:
            raise Misconfigured("no uploads to examine: set `objects` to an object store that signs URLs, s3://…")
        return self._queue.work(self.examine)

    def grant(self, caller: Caller, round_id: int, job: int, asked: UploadRequest) -> UploadTicket:
        """Returns a ticket for one job's file; the same one as long as it is open, and one that is stored if it is.

        Raises:
            Refused: nodes upload to the coordinator itself, another node's job, the work phase has ended, or too much.
            Unavailable: database, queue or store do not answer.
        """
        objects, now = self._offered(), time.time()
        if asked.node != caller.node:
            raise forbidden(f"wrong signer: expected node {asked.node} of the upload, not node {caller.node}")
        if asked.size > self._most_bytes:
            raise too_large(f"artifact too large: expected at most {self._most_bytes} bytes")
        self._artifacts.check_upload(caller, round_id, job, asked.size)
        with self._store.reading() as session:
            recent = col(GrantRow.expires_at) > now - RECENT_SECONDS
            mine = session.exec(select(GrantRow).where(GrantRow.node == caller.node, recent)).all()
            grants = [row for row in mine if row.state != "refused" and row.expires_at > now]
            self._artifacts.check_count(session, round_id, job)
            deadline = session.get_one(RoundRow, round_id).deadline
        for row in grants:
            same = (row.round, row.job, row.size, row.file_hash) == (round_id, job, asked.size, asked.file_hash)
            if same and (row.state != "stored" or self._artifacts.blobs.has(row.root)):
                return self._ticket(row, objects)
        if sum(row.state != "stored" for row in mine) >= MOST_OPEN:
            raise too_many(f"too many uploads: node {caller.node} has {MOST_OPEN} in an hour that are not stored")
        row = GrantRow(
            name=secrets.token_hex(32),
            round=round_id,
            job=job,
            expires_at=min(now + LEAST_SECONDS + asked.size / LEAST_BYTES_PER_SECOND, float(deadline)),
            **dict(asked),
        )
        with self._store.writing() as session:
            session.add(row)
        return self._ticket(row, objects)

    def told(self, caller: Caller, name: str) -> UploadTicket:
        """Has the file examined that a node says it has uploaded, and returns its state.

        Raises:
            Refused: no such upload of this node, or it has expired.
            Unavailable: database, queue or store do not answer, or nobody examines uploads.
        """
        objects, now, order = self._offered(), time.time(), False
        with self._store.writing() as session:
            row = session.get(GrantRow, name)
            if row is None or row.node != caller.node:
                raise missing(f"no upload {name} of node {caller.node} here: ask for another")
            if row.state == "open":
                if now > row.expires_at + LATE_SECONDS:
                    raise missing(f"upload expired {now - row.expires_at:.0f} s ago: ask for another")
                row.state = "checking"
            if row.state == "checking" and now - row.ordered_at > REORDER_SECONDS:
                row.ordered_at, order = now, True
        if order and self._queue is not None:
            self._queue.order(name)
        return self._ticket(row, objects)

    def ticket(self, name: str) -> UploadTicket:
        """Returns an upload's state. Raises ``Refused`` for an unknown one, and ``Unavailable``."""
        with self._store.reading() as session:
            row = session.get(GrantRow, name)
        if row is None:
            raise missing(f"no upload {name} here: ask for another")
        return self._ticket(row, self._offered())

    def examine(self, name: str) -> None:
        """Takes an uploaded file if it is what was announced; what is wrong with it becomes the upload's answer.

        Raises:
            Unavailable: database or store do not answer; the upload is examined again when its node asks again.
        """
        with self._store.reading() as session:
            row = session.get(GrantRow, name)
        if self._objects is None or row is None or row.state != "checking":
            return
        key = f"{INCOMING}/{name}"
        try:
            root, why, state = self._take(self._objects, key, row), "", "stored"
        except NotThere:
            root, why, state = b"", "", "open"
        except Rejected as error:
            root, why, state = b"", str(error)[:1000], "refused"
        with self._store.writing() as session:
            row = session.get(GrantRow, name)
            if row is None or row.state != "checking":  # another process was first
                return
            row.state, row.root, row.why = state, root, why
        if state != "open":
            self._objects.delete([key])

    def _take(self, objects: Objects, key: str, row: GrantRow) -> bytes:
        """Stores the artifact and returns its root; raises ``NotThere`` where nothing was uploaded."""
        size = objects.head(key).size
        if size != row.size:
            raise Rejected(f"wrong upload: {size} bytes, expected the {row.size} that were announced")
        data = bytes(objects.read_range(key, 0, row.size))  # no more, whatever is there by now
        digest = keccak(data)
        if digest != row.file_hash:
            raise Rejected(f"wrong upload: its keccak256 is 0x{digest.hex()}, announced was 0x{row.file_hash.hex()}")
        return self._artifacts.take(row.node, row.round, row.job, data, digest)

    def _offered(self) -> Objects:
        if self._objects is None or self._queue is None:
            raise missing("artifacts are uploaded to this coordinator itself")
        if not self._queue.attended():
            raise missing(
                "artifacts are uploaded to this coordinator itself while no process examines uploads: "
                "its operator starts `assize coordinator precheck`"
            )
        return self._objects

    def _ticket(self, row: GrantRow, objects: Objects) -> UploadTicket:
        known: dict[str, object] = {"name": row.name, "state": row.state, "root": row.root or None, "why": row.why}
        if row.state == "open":
            seconds = max(1, int(row.expires_at - time.time()))
            known["url"] = objects.sign_put(f"{INCOMING}/{row.name}", seconds)
            known |= {"headers": dict(objects.signed_headers), "expires_at": int(row.expires_at)}
        return UploadTicket.model_validate(known)
