"""Deletion of what is needed no more: artifacts and evidence of rounds that ended long ago, and abandoned uploads.

A round counts from when it was first seen ended, whatever its own times: a coordinator that was down must not delete
what has just become final. An appeal needs its round's artifacts and evidence until it has ended itself. Blobs go
before the rows that name them, so that a crash in between leaves nothing that is not found again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from prometheus_client import Counter
from sqlmodel import Session, col, delete, or_, select

from coordinator.blobs import INCOMING, KeptBlobs
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import EndedRoundRow, EvidenceRow, GrantRow, RoundRow, UploadRow
from protocol.chain.structs import State
from protocol.deadlines import LEAST_BYTES_PER_SECOND
from protocol.errors import AssizeError

log = structlog.get_logger()

DELETED = Counter("assize_coordinator_deleted", "Artifacts and bundles of evidence deleted after keep_days")

SWEEP_SECONDS = 60.0
"""Time between two sweeps."""

ABANDONED_SECONDS = 3600
"""Time after which an uploaded file that was not taken is deleted, besides what its upload may last."""

DAY_SECONDS = 86400


class Retention:
    """Deletes the blobs of the runs driven here. One thread calls ``sweep``, its own once ``start`` was called."""

    def __init__(self, settings: CoordinatorSettings, store: Store, blobs: KeptBlobs) -> None:
        self._runs, self._keep_days, self._store, self._blobs = settings.runs, settings.keep_days, store, blobs
        self._abandoned_seconds = ABANDONED_SECONDS + settings.max_artifact_bytes / LEAST_BYTES_PER_SECOND
        self._most_bytes = settings.max_artifact_bytes
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, due: Callable[[], bool]) -> None:
        """Starts a thread that sweeps now and then, when ``due``, until ``close``."""
        self._thread = threading.Thread(target=self._sweep_on, args=(due,), name="retention", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, or leaves it behind where the store does not answer."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def sweep(self, now: float) -> None:
        """Deletes what is due at ``now`` (unix seconds). Raises ``Unavailable``; the next sweep goes on."""
        self._drop_abandoned(now)
        if self._keep_days is None:
            return
        self._note_ended(now)
        for round_id in self._due(now - self._keep_days * DAY_SECONDS):
            if self._stopped.is_set():
                return
            self._delete(round_id)

    def _sweep_on(self, due: Callable[[], bool]) -> None:
        while not self._stopped.wait(SWEEP_SECONDS):
            try:
                if due():
                    self.sweep(time.time())
            except Exception as error:  # the outermost loop of this thread: any failure is retried
                log.warning("sweep_failed", error=str(error) if isinstance(error, AssizeError) else repr(error))

    def _drop_abandoned(self, now: float) -> None:
        if self._blobs.objects is None:
            return
        before, most = now - self._abandoned_seconds, self._most_bytes
        listed = self._blobs.objects.listed(INCOMING)
        self._blobs.objects.delete([found.key for found in listed if found.written_at < before or found.size > most])
        with self._store.writing() as session:
            session.exec(delete(GrantRow).where(col(GrantRow.expires_at) < now - ABANDONED_SECONDS))

    def _note_ended(self, now: float) -> None:
        """Notes rounds with blobs that ended since the last sweep; forgets those that a reorganisation reopened."""
        with self._store.writing() as session:
            held = or_(*(col(RoundRow.id).in_(select(row.round)) for row in (UploadRow, EvidenceRow)))
            ended = select(RoundRow.id).where(col(RoundRow.run).in_(self._runs), held, _has_ended())
            known = set(session.exec(select(EndedRoundRow.round)))
            session.add_all(
                EndedRoundRow(round=each, ended_at=now) for each in session.exec(ended) if each not in known
            )
            every = select(RoundRow.id).where(_has_ended())
            session.exec(delete(EndedRoundRow).where(col(EndedRoundRow.round).not_in(every)))

    def _due(self, before: float) -> Sequence[int]:
        with self._store.reading() as session:
            appealed = select(RoundRow.parent).where(col(RoundRow.run).in_(self._runs), ~_has_ended())
            mine = select(RoundRow.id).where(col(RoundRow.run).in_(self._runs))
            due = select(EndedRoundRow.round).where(
                EndedRoundRow.ended_at <= before,
                col(EndedRoundRow.round).in_(mine),
                col(EndedRoundRow.round).not_in(appealed),
            )
            return session.exec(due).all()

    def _delete(self, round_id: int) -> None:
        with self._store.reading() as session:
            artifacts, evidence = _roots(session, UploadRow, round_id), _roots(session, EvidenceRow, round_id)
        for root in artifacts:
            self._blobs.artifacts.drop(root)
        for root in evidence:
            self._blobs.evidence.drop(root)
        with self._store.writing() as session:
            for row in (UploadRow, EvidenceRow):
                session.exec(delete(row).where(col(row.round) == round_id))
            session.exec(delete(EndedRoundRow).where(col(EndedRoundRow.round) == round_id))
        DELETED.inc(len(artifacts) + len(evidence))
        log.info("round_deleted", round=round_id, artifacts=len(artifacts), evidence=len(evidence))


def _has_ended() -> Any:
    return col(RoundRow.state).in_((State.SETTLED, State.VOID))


def _roots(session: Session, row: type[UploadRow] | type[EvidenceRow], round_id: int) -> Sequence[bytes]:
    return session.exec(select(row.root).where(row.round == round_id)).all()
