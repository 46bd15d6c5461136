"""Deliveries to the coordinators that must not delay a vote: heartbeats and evidence."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from protocol.errors import AssizeError
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire import api
from validator.journal import VoteJournal, VoteKey

RETRY_SECONDS = 2.0

log = structlog.get_logger()


class Deliveries:
    """Sends heartbeats and evidence from one thread of its own; the journal is used from the caller's thread only."""

    def __init__(
        self, coordinators: RunCoordinators, journal: VoteJournal, node: int, heartbeat_seconds: float
    ) -> None:
        self._coordinators, self._journal, self._node = coordinators, journal, node
        self._heartbeat_seconds = heartbeat_seconds
        self._pool = ThreadPoolExecutor(1, "deliveries")
        self._heartbeat: Future[None] | None = None
        self._heartbeat_at = 0.0
        self._publishing: dict[VoteKey, Future[None]] = {}
        self._publish_at = 0.0
        self._said = ""

    def beat(self, version: int | None) -> None:
        """Sends a heartbeat if one is due; ``version`` is the newest one loaded."""
        now = time.monotonic()
        if now < self._heartbeat_at or (self._heartbeat is not None and not self._heartbeat.done()):
            return
        self._heartbeat_at = now + self._heartbeat_seconds
        self._heartbeat = self._pool.submit(self._beat, api.Heartbeat(node=self._node, version=version))

    def publish(self, open_to_commit: set[VoteKey]) -> None:
        """Sends the evidence of unpublished votes, except in rounds that still take commitments."""
        self._collect()
        now = time.monotonic()
        if now < self._publish_at:
            return
        for written in self._journal.unpublished():
            key, data = written.key, self._journal.evidence(written.vote.evidence_root)
            if key in open_to_commit or key in self._publishing:
                continue
            if data is None:
                self._journal.mark_published(key)
            else:
                root = written.vote.evidence_root
                self._publishing[key] = self._pool.submit(self._coordinators.put_evidence, root, data)

    def close(self) -> None:
        """Ends the deliveries in progress."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _collect(self) -> None:
        for key in [key for key, future in self._publishing.items() if future.done()]:
            error = self._publishing.pop(key).exception()
            if error is None:
                self._journal.mark_published(key)
            elif isinstance(error, AssizeError):
                if str(error) != self._said:
                    log.warning("evidence_not_published", round=key.round, error=str(error))
                self._said = str(error)
                self._publish_at = time.monotonic() + RETRY_SECONDS
            else:
                raise error

    def _beat(self, heartbeat: api.Heartbeat) -> None:
        try:
            replies = self._coordinators.heartbeat(heartbeat)
        except AssizeError as error:
            log.debug("heartbeat_failed", error=str(error))
        else:
            log.debug("heartbeat", states=[reply.state for reply in replies])
