"""The coordinator's service behind its routes, over one database, one Redis and one set of directories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from coordinator.api import status
from coordinator.api.assignments import assignments
from coordinator.api.bodies import Bodies
from coordinator.api.gate import Gate
from coordinator.api.intake import Intake
from coordinator.api.poller import Poller
from coordinator.api.refusals import missing
from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Notifier
from coordinator.driver.selection import ListingLimits
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store, upsert
from coordinator.tables import CursorRow, HeartbeatRow, RulesRow, RunRow
from protocol.chain.deployment import Deployment
from protocol.errors import Unavailable
from protocol.transport.blobs import DirectoryBlobs
from protocol.wire import api
from protocol.wire.auth import Audience, Signer
from protocol.wire.rollout import Limits
from protocol.wire.rules import decode_rules

NOT_AVAILABLE = "it takes no new jobs now: it drains, or has its quiet hours"
"""Reason for which a node that is not available is not listed."""

BEAT_SECONDS = 2.0
"""Shortest time between SQL writes of unchanged heartbeats; each heartbeat renews the lease in Redis."""


MOST_STORED_AT_ONCE = 2
"""Most bodies that are parsed and stored at once: each is whole in memory for that time."""

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


class CoordinatorService:
    """Answers the routes. Methods block, so routes call them in threads."""

    def __init__(self, settings: CoordinatorSettings, store: Store, deployment: Deployment, signer: Signer) -> None:
        """``signer`` signs the receipts that this coordinator gives as a store."""
        self.settings = settings
        self._store = store
        self._deployment = deployment
        self._limits_by_rules: dict[bytes, ListingLimits] = {}
        self._leases = Leases(settings.redis_url, settings.run)
        self.notifier = Notifier(settings.redis_url, settings.run)
        limits = Limits(file_bytes=settings.max_artifact_bytes)
        artifacts, evidence = (DirectoryBlobs(settings.state_dir / name) for name in ("artifacts", "evidence"))
        self.gate = Gate(store, Audience(deployment.chain_id, deployment.rounds, settings.run))
        self.bodies = Bodies(settings.state_dir / "incoming")
        self._storing = asyncio.Semaphore(MOST_STORED_AT_ONCE)
        self.intake = Intake(settings.run, store, artifacts, evidence, deployment, limits, signer)
        self.poller = Poller(store)

    async def storing(self, store: Callable[_Given, _Made], *args: _Given.args, **options: _Given.kwargs) -> _Made:
        """Calls ``store`` in a thread, once less than ``MOST_STORED_AT_ONCE`` others are running."""
        async with self._storing:
            return await run_in_threadpool(store, *args, **options)

    def close(self) -> None:
        """Closes the connections."""
        self._leases.close()
        self.notifier.close()
        self._store.close()

    def health(self) -> api.Health:
        """Returns the number of the newest mirrored block; 0 before the first."""
        with self._store.reading() as session:
            cursor = session.get(CursorRow, 1)
            return api.Health(ok=True, run=self.settings.run, head=cursor.number if cursor else 0)

    def status(self) -> api.StatusReport:
        """Returns the live counts."""
        now = time.time()
        leased = self._leased(now)
        with self._store.reading() as session:
            limits = self._limits(session)
            return status.status(session, self.settings.run, leased, self.settings.lease_seconds, limits, now)

    def describe(self, run_id: int) -> api.RunDescription:
        """Returns a run's rules, contracts and sources for nodes. Raises ``Refused`` for runs not driven here."""
        with self._store.reading() as session:
            run = session.get(RunRow, run_id) if run_id == self.settings.run else None
            if run is None:
                raise missing(f"run {run_id} is not driven here")
            body = session.get(RulesRow, run.rules_hash)
        if body is None:
            raise missing(f"the rules of run {run_id} are not stored here yet")
        return api.RunDescription(
            run=run.id,
            rules_hash=run.rules_hash,
            rules=decode_rules(body.body, run.rules_hash).model_dump(mode="json"),
            chain=api.ChainIdentity.model_validate(self._deployment, from_attributes=True),
            trainer=run.trainer,
            coordinator=run.coordinator,
            sources=list(self.settings.relays),
            origin=self.settings.origin,
        )

    def rules(self, rules_hash: bytes) -> bytes:
        """Returns canonical rules by hash. Raises ``Refused`` for an unknown hash."""
        with self._store.reading() as session:
            rules = session.get(RulesRow, rules_hash)
        if rules is None:
            raise missing(f"no rules with the hash 0x{rules_hash.hex()} are stored here")
        return rules.body

    def heartbeat(self, heartbeat: api.Heartbeat) -> api.HeartbeatReply:
        """Renews the node's lease, stores the heartbeat, and returns the node's state."""
        now = time.time()
        self._leases.grant(heartbeat.node, now + self.settings.lease_seconds if heartbeat.available else now)
        self._store_heartbeat(heartbeat, now)
        if not heartbeat.available:
            return api.HeartbeatReply(state="unlisted", reasons=[NOT_AVAILABLE])
        leased = self._leases.held(now)
        with self._store.reading() as session:
            limits = self._limits(session)
            return status.heartbeat_reply(session, self.settings.run, heartbeat.node, leased, limits, now)

    def _limits(self, session: Session) -> ListingLimits | None:
        """Returns the listing limits under the run's present rules; None while those are unknown."""
        run = session.get(RunRow, self.settings.run)
        if run is None or (body := session.get(RulesRow, run.rules_hash)) is None:
            return None
        if body.hash not in self._limits_by_rules:
            self._limits_by_rules[body.hash] = ListingLimits(
                self.settings.version_lag, decode_rules(body.body, body.hash).sequential.neglect_bound
            )
        return self._limits_by_rules[body.hash]

    def _store_heartbeat(self, heartbeat: api.Heartbeat, now: float) -> None:
        row = HeartbeatRow(
            node=heartbeat.node,
            version=-1 if heartbeat.version is None else heartbeat.version,
            available=heartbeat.available,
            hardware=heartbeat.hardware.model_dump_json(),
            heard_at=now,
        )
        with self._store.reading() as session:
            last = session.get(HeartbeatRow, heartbeat.node)
        content = (row.version, row.available, row.hardware)
        if last and (last.version, last.available, last.hardware) == content and now - last.heard_at < BEAT_SECONDS:
            return
        with self._store.writing() as session:
            upsert(session, [row])

    def assignments(self, node: int) -> api.Assignments:
        """Returns the rounds that wait for the node's work."""
        with self._store.reading() as session:
            return assignments(session, self.settings.run, node, int(time.time()))

    def _leased(self, now: float) -> frozenset[int]:
        """Returns the leases for display; none if Redis does not answer."""
        try:
            return self._leases.held(now)
        except Unavailable:
            return frozenset()
