"""Opens rounds ahead of the trainer, as ``pacing`` and ``selection`` decide, and reports the reason for waiting."""

from __future__ import annotations

import time
from collections import Counter
from itertools import takewhile

import structlog

from coordinator.driver.candidates import candidates
from coordinator.driver.control import DRAINED, DRAINING, hold_sentence
from coordinator.driver.leases import Leases
from coordinator.driver.off_chain import OffChain, off_chain
from coordinator.driver.pacing import (
    STARVED_SECONDS,
    PacingLimits,
    RunProgress,
    all_judged,
    end_reason,
    funding_shortfall,
    in_flight,
    rounds_ahead,
    starvation,
)
from coordinator.driver.selection import Candidate, ListingLimits, bounded_by_speed, divide, exclusion_reason
from coordinator.mirror.market import Market
from coordinator.settings import CoordinatorSettings, HookKind
from coordinator.store import Store, upsert
from coordinator.tables import CursorRow, HoldRow, OpeningStatusRow, RoundRow, RunRow, WorkPhaseRow
from coordinator.webhooks.outbox import HookOutbox
from protocol.chain.structs import State, most_reserved
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.wire.assignments import pack_assignments
from protocol.wire.rules import Rules, encode_rules, rules_hash

log = structlog.get_logger()

PHASE_SECONDS = 60.0
"""Time between looks at the length of the work phases on chain."""

RETRY_SECONDS = 1.0
"""Pause after the contract refused an opening, for example for lack of validators or bonds."""


class RoundOpener:
    """Opens the rounds of one run."""

    def __init__(
        self, run: int, store: Store, leases: Leases, sender: Sender, settings: CoordinatorSettings, rules: Rules
    ) -> None:
        self.run = run
        self._store, self._leases, self._sender, self._settings = store, leases, sender, settings
        self._outbox = HookOutbox.of(settings)
        self._rules_hash = rules_hash(encode_rules(rules))
        self._pacing = PacingLimits(rules.async_level, settings.max_rounds, settings.last_version)
        self._limits = ListingLimits.of(rules, settings.version_lag)
        self._phase: tuple[float, int] = (0.0, 0)
        self._waiting: str | None = None
        self._not_before = 0.0
        self._tries = 0
        self._quiet: tuple[int, int] | None = None
        self._quiet_since = 0.0
        self._patience = STARVED_SECONDS

    def advance(self, market: Market, now: float) -> bool:
        """Opens a round if one is due and possible. Returns True if it opened one."""
        if time.monotonic() < self._not_before:
            return False
        run = market.runs[self.run]
        progress, pacing = run_progress(run, self._settings.jobs_per_round), self._pacing
        waiting = self._held(market, run.id, now) or end_reason(progress, pacing) or self._obstacle(market, run)
        if waiting is None:
            fresh = self._usable_rounds(market, run)
            count = in_flight(fresh, run.version, pacing.async_level)
            idle = self._idle_seconds(run, fresh)
            if count >= rounds_ahead(progress, pacing, idle, self._patience):
                waiting = starvation(idle, count, self._patience)  # empty: enough rounds are in flight
        if waiting is None:
            waiting = funding_shortfall(progress) or self._open(market, run, now)
        self._report(waiting or "")
        return waiting is None

    def _held(self, market: Market, run: int, now: float) -> str:
        """Returns the reason of the operator's hold; notes that a draining run has drained."""
        with self._store.reading() as session:
            held = session.get(HoldRow, run)
            read_up_to = session.get(CursorRow, 1)
        if held is None or held.state != DRAINING or any(market.rounds[each].run == run for each in market.live):
            return hold_sentence(held)
        # A round that this process opened may be in a block that the mirror has not read.
        if self._sender.unfinished() or read_up_to is None or read_up_to.number < self._sender.newest_block():
            return hold_sentence(held)
        with self._store.writing() as session:
            held = session.get(HoldRow, run)
            if held is not None and held.state == DRAINING:
                held.state, held.since = DRAINED, now
                self._outbox.announce(session, HookKind.DRAINED, run, now, why=held.why)
        log.info("run_drained", run=run)
        return hold_sentence(held)

    def _obstacle(self, market: Market, run: RunRow) -> str | None:
        """Returns a reason against any round that this process cannot remove, or None."""
        if market.admin.paused:
            return "the deployment's admin has paused new rounds"
        if run.coordinator != self._sender.address:
            return f"run {run.id} has another coordinator now, {run.coordinator}"
        if run.rules_hash != self._rules_hash:
            return f"run {run.id} has new rules, 0x{run.rules_hash.hex()}: restart with their file"
        return None

    def _usable_rounds(self, market: Market, run: RunRow) -> list[RoundRow]:
        level = self._pacing.async_level
        fresh = takewhile(lambda each: run.version - each.policy_version <= level, market.rounds_of(run.id))
        return list(fresh)

    def _idle_seconds(self, run: RunRow, fresh: list[RoundRow]) -> float:
        """Returns for how long every round has been judged and the trainer has consumed nothing."""
        quiet = (run.version, run.rounds_opened) if all_judged(fresh) else None
        now = time.monotonic()
        if quiet != self._quiet:
            if self._quiet is not None and run.version > self._quiet[0]:  # so long a step takes
                self._patience = max(STARVED_SECONDS, 2 * (now - self._quiet_since))
            self._quiet, self._quiet_since = quiet, now
        return 0.0 if quiet is None else now - self._quiet_since

    def _open(self, market: Market, run: RunRow, now: float) -> str | None:
        """Tries to open a round; returns the obstacle, or None once it is open."""
        able = self._able(market, run, now)
        if not able:
            return "no worker is ready"
        if not run.rounds_opened and len(able) < self._settings.first_round_nodes:
            return f"{len(able)} of {self._settings.first_round_nodes} workers are ready"
        packed = pack_assignments(divide(self._settings.jobs_per_round, able, run.rounds_opened))
        call = calls.open_round(self._sender.chain.deployment, run.id, run.step + 1, run.version, packed)
        try:
            self._sender.send_once(f"run-{run.id}/open/{run.step + 1}/{self._tries}", call)
        except Rejected as refusal:
            self._tries += 1
            self._not_before = time.monotonic() + RETRY_SECONDS
            return str(refusal)
        log.info("round_opened", run=run.id, step=run.step + 1, version=run.version, workers=len(able))
        return None

    def _able(self, market: Market, run: RunRow, now: float) -> list[Candidate]:
        self._note_work_phase(run.id)
        seen = self._off_chain(run.id, now)
        found = candidates(market.nodes, market.members, run, seen, self._limits.needs, now)
        owed = jobs_owed(market)
        able = [each for each in found if exclusion_reason(each, run.version, self._limits) is None]
        return [each for each in (bounded_by_speed(one, owed[one.node]) for one in able) if each.free > 0]

    def _note_work_phase(self, run: int) -> None:
        """Stores the length of the run's work phases for all processes, if it is new."""
        read_at, known = self._phase
        if known and time.monotonic() - read_at < PHASE_SECONDS:
            return
        seconds = self._sender.chain.latest().run(run).terms.work_seconds
        if seconds != known:
            with self._store.writing() as session:
                upsert(session, [WorkPhaseRow(run=run, seconds=seconds)])
        self._phase = time.monotonic(), seconds

    def _off_chain(self, run: int, now: float) -> OffChain:
        leased = self._leases.held(now)
        with self._store.reading() as session:
            found = off_chain(session, run, leased, now)
            session.expunge_all()
        return found

    def _report(self, waiting: str) -> None:
        """Reports a new reason for waiting, in the log and in SQL."""
        if waiting == self._waiting:
            return
        self._waiting = waiting
        if waiting:
            log.info("opening_waits", run=self.run, why=waiting)
        with self._store.writing() as session:
            upsert(session, [OpeningStatusRow(run=self.run, waiting=waiting)])


def jobs_owed(market: Market) -> Counter[int]:
    """Counts the jobs of open rounds that each node has not submitted yet."""
    owed: Counter[int] = Counter()
    for round_ in (market.rounds[each] for each in market.live):
        if round_.state == State.OPEN:
            for listing in market.listings[round_.id]:
                jobs = (1 << listing.count) - 1 << listing.first
                owed[listing.node] += (jobs & ~round_.submitted).bit_count()
    return owed


def run_progress(run: RunRow, jobs: int) -> RunProgress:
    """Returns the run's progress, with what a round of ``jobs`` jobs reserves."""
    need = most_reserved(jobs, run.max_units, run.price_per_unit, run.committee, run.juror_fee)
    return RunProgress(run.id, run.version, run.closed, run.rounds_opened, run.escrow, need)
