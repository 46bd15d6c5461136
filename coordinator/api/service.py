"""The coordinator's service behind its routes, over one database, one Redis and one set of directories."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from sqlmodel import Session, bindparam, col, delete
from starlette.concurrency import run_in_threadpool

from coordinator.api import status
from coordinator.api.artifacts import ArtifactIntake
from coordinator.api.assignments import assignments
from coordinator.api.bodies import Bodies
from coordinator.api.gate import Gate
from coordinator.api.group_commit import GroupCommit
from coordinator.api.intake import Intake
from coordinator.api.poller import Poller
from coordinator.api.refusals import forbidden, missing
from coordinator.api.status import RunNow
from coordinator.api.uploads import Uploads
from coordinator.blobs import KeptBlobs
from coordinator.driver.control import ban_of, ban_sentence
from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Notifier
from coordinator.driver.rhythm import lease_of, next_heartbeat, wait_of
from coordinator.driver.selection import ListingLimits
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store, upsert
from coordinator.tables import CursorRow, HeartbeatRow, OfferRow, RulesRow, RunRow
from protocol.chain.deployment import Deployment
from protocol.errors import Unavailable
from protocol.wire import api
from protocol.wire.auth import Audience, Signer
from protocol.wire.rules import decode_rules

NOT_AVAILABLE = "it takes no new jobs now: it drains, or has its quiet hours"
"""Reason for which a node that is not available is not listed."""

MOST_STORED_AT_ONCE = 2
"""Most bodies that are parsed and stored at once: each is whole in memory for that time."""

STORE_THREADS = 16
"""Most threads that wait for the store of artifacts, apart from those of ``storing``: a store that hangs must not take
the threads in which heartbeats are answered."""

_WITHOUT_OFFER = delete(OfferRow).where(col(OfferRow.node).in_(bindparam("nodes", expanding=True)))
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


class CoordinatorService:
    """Answers the routes. Methods that are not coroutines block, so routes call them in threads."""

    def __init__(self, settings: CoordinatorSettings, store: Store, deployment: Deployment, signer: Signer) -> None:
        """``signer`` signs the receipts that this coordinator gives as a store."""
        self.settings = settings
        self._store = store
        self._deployment = deployment
        self._limits_by_rules: dict[bytes, ListingLimits] = {}
        self._leases = {run: Leases(settings.redis_url, run) for run in settings.runs}
        self.notifier = Notifier(settings.redis_url, settings.runs[0])
        blobs = KeptBlobs.open(settings)
        self.gate = Gate(store, [Audience(deployment.chain_id, deployment.rounds, run) for run in settings.runs])
        self._heartbeats = GroupCommit(self._hear)
        self.bodies = Bodies(settings.state_dir / "incoming")
        self._storing = asyncio.Semaphore(MOST_STORED_AT_ONCE)
        self._store_threads = CapacityLimiter(STORE_THREADS)
        self.artifacts = ArtifactIntake.of(settings, store, blobs.artifacts, deployment)
        self.uploads = Uploads.of(settings, store, self.artifacts, blobs.objects)
        self.intake = Intake(store, self.artifacts, blobs.evidence, deployment, signer)
        self.poller = Poller(store)

    async def storing(self, store: Callable[_Given, _Made], *args: _Given.args, **options: _Given.kwargs) -> _Made:
        """Calls ``store`` in a thread, once less than ``MOST_STORED_AT_ONCE`` others are running."""
        async with self._storing:
            return await run_in_threadpool(store, *args, **options)

    async def reaching_store(
        self, call: Callable[_Given, _Made], *args: _Given.args, **options: _Given.kwargs
    ) -> _Made:
        """Calls what may wait for the store of artifacts, in one of a few threads of its own."""
        return await to_thread.run_sync(partial(call, *args, **options), limiter=self._store_threads)

    def close(self) -> None:
        """Closes the connections."""
        for leases in self._leases.values():
            leases.close()
        self.uploads.close()
        self.notifier.close()
        self._store.close()

    def health(self) -> api.Health:
        """Returns the number of the newest mirrored block; 0 before the first."""
        with self._store.reading() as session:
            cursor = session.get(CursorRow, 1)
            runs = self.settings.runs
            more = {"runs": list(runs)} if len(runs) > 1 else {}
            return api.Health(ok=True, run=runs[0], head=cursor.number if cursor else 0, **more)

    def driven(self, run: int | None) -> int:
        """Returns the run, the first one for None. Raises ``Refused`` for runs not driven here."""
        if run is not None and run not in self.settings.runs:
            raise missing(f"run {run} is not driven here")
        return self.settings.runs[0] if run is None else run

    def status(self, run: int, details: bool = False) -> api.StatusReport:
        """Returns the live counts of a run driven here; with ``details`` also nodes' offers and reasons."""
        now = time.time()
        leased = self._leased(run, now)
        with self._store.reading() as session:
            limits = self._limits(session, session.get(RunRow, run))
            lease = lease_of(self.settings.lease_seconds, len(leased))
            return status.status(session, run, leased, lease, limits, now, details)

    def describe(self, run_id: int) -> api.RunDescription:
        """Returns a run's rules, contracts and sources for nodes. Raises ``Refused`` for runs not driven here."""
        with self._store.reading() as session:
            run = session.get(RunRow, self.driven(run_id))
            if run is None:
                raise missing(f"run {run_id} is not in the blocks that this coordinator has read yet")
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

    async def heartbeat(self, run: int, heartbeat: api.Heartbeat) -> api.HeartbeatReply:
        """Renews the node's lease in the run, stores the heartbeat, and returns the node's state."""
        return await self._heartbeats.add((run, heartbeat))

    def _hear(self, heartbeats: Sequence[tuple[int, api.Heartbeat]]) -> list[api.HeartbeatReply]:
        """Takes in heartbeats, each of a run, and returns the reply to each."""
        now = time.time()
        nodes = {run: self._leases[run].count() for run in {run for run, _ in heartbeats}}
        for run, count in nodes.items():
            lease = lease_of(self.settings.lease_seconds, count)
            mine = (each for named, each in heartbeats if named == run)
            self._leases[run].grant({each.node: now + (lease if each.available else 0.0) for each in mine})
        rows = [_row_of(each, now) for _, each in heartbeats]
        with self._store.writing() as session:
            # Sorted: two processes that write in different orders would wait for one another's rows.
            newest = {row.node: (row, each.offer) for row, (_, each) in zip(rows, heartbeats, strict=True)}
            written = [newest[node] for node in sorted(newest)]
            offers = [OfferRow(node=row.node, offer=offer.model_dump_json()) for row, offer in written if offer]
            upsert(session, [*(row for row, _ in written), *offers])
            if without := [row.node for row, offer in written if not offer]:
                session.exec(_WITHOUT_OFFER, params={"nodes": without})
        with self._store.reading() as session:
            runs = {run: status.run_now(session, run) for run in nodes}
            return [
                self._reply(session, runs[run], row, each, nodes[run])
                for row, (run, each) in zip(rows, heartbeats, strict=True)
            ]

    def _reply(
        self,
        session: Session,
        of_run: RunNow | None,
        row: HeartbeatRow,
        heartbeat: api.Heartbeat,
        nodes: int,
    ) -> api.HeartbeatReply:
        if heartbeat.available:
            reply = status.heartbeat_reply(session, of_run, row, heartbeat.offer, self._limits)
        else:
            reply = api.HeartbeatReply(state="unlisted", reasons=[NOT_AVAILABLE])
        if heartbeat.offer is None:  # earlier versions make none, and refuse an answer with more than they know
            return reply
        lot = random.random()
        told = {"heartbeat_seconds": next_heartbeat(nodes, lot), "wait_seconds": wait_of(nodes, lot)}
        return reply.model_copy(update=told)

    def _limits(self, session: Session, run: RunRow | None) -> ListingLimits | None:
        """Returns the listing limits under the run's present rules; None while those are unknown."""
        if run is None:
            return None
        if run.rules_hash not in self._limits_by_rules:
            body = session.get(RulesRow, run.rules_hash)
            if body is None:
                return None
            rules = decode_rules(body.body, body.hash)
            self._limits_by_rules[body.hash] = ListingLimits.of(rules, self.settings.version_lag)
        return self._limits_by_rules[run.rules_hash]

    def assignments(self, run: int, node: int) -> api.Assignments:
        """Returns the run's rounds that wait for the node. Raises ``Refused`` for a banned node that has none."""
        now = time.time()
        with self._store.reading() as session:
            found = assignments(session, run, node, int(now))
            if not found.rounds and (banned := ban_of(session, run, node, now)):
                raise forbidden(f"node {node} is {ban_sentence(banned)}")
            return found

    def _leased(self, run: int, now: float) -> frozenset[int]:
        """Returns the leases for display; none if Redis does not answer."""
        try:
            return self._leases[run].held(now)
        except Unavailable:
            return frozenset()


def _row_of(heartbeat: api.Heartbeat, now: float) -> HeartbeatRow:
    return HeartbeatRow(
        node=heartbeat.node,
        version=-1 if heartbeat.version is None else heartbeat.version,
        available=heartbeat.available,
        hardware=heartbeat.hardware.model_dump_json(),
        heard_at=now,
    )
