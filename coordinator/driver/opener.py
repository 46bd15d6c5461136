"""Opens rounds ahead of the trainer, as ``pacing`` and ``selection`` decide, and reports the reason for waiting."""

from __future__ import annotations

import time
from itertools import takewhile

import structlog
from sqlmodel import select

from coordinator.driver.candidates import Liveness, candidates
from coordinator.driver.leases import Leases
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
from coordinator.driver.selection import Candidate, ListingLimits, divide, exclusion_reason
from coordinator.mirror.market import Market
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store, upsert
from coordinator.tables import HeartbeatRow, OpeningStatusRow, RoundRow, RunRow
from protocol.chain.structs import most_reserved
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.wire.assignments import pack_assignments
from protocol.wire.rules import Rules, encode_rules, rules_hash

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""Pause after the contract refused an opening, for example for lack of validators or bonds."""


class RoundOpener:
    """Opens the rounds of one run."""

    def __init__(
        self, store: Store, leases: Leases, sender: Sender, settings: CoordinatorSettings, rules: Rules
    ) -> None:
        self._store, self._leases, self._sender, self._settings = store, leases, sender, settings
        self._rules_hash = rules_hash(encode_rules(rules))
        self._pacing = PacingLimits(rules.async_level, settings.max_rounds, settings.last_version)
        self._limits = ListingLimits(settings.version_lag, rules.sequential.neglect_bound)
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
        run = market.runs[self._settings.run]
        progress, pacing = run_progress(run, self._settings.jobs_per_round), self._pacing
        waiting = end_reason(progress, pacing) or self._obstacle(market, run)
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
        log.info("round_opened", step=run.step + 1, version=run.version, workers=len(able))
        return None

    def _able(self, market: Market, run: RunRow, now: float) -> list[Candidate]:
        seen = self._liveness(now)
        found = candidates(market.nodes, market.members, run, seen, now)
        return [each for each in found if exclusion_reason(each, run.version, self._limits) is None]

    def _liveness(self, now: float) -> Liveness:
        with self._store.reading() as session:
            heartbeats = {row.node: row for row in session.exec(select(HeartbeatRow))}
            session.expunge_all()
        return Liveness(heartbeats, self._leases.held(now))

    def _report(self, waiting: str) -> None:
        """Reports a new reason for waiting, in the log and in SQL."""
        if waiting == self._waiting:
            return
        self._waiting = waiting
        if waiting:
            log.info("opening_waits", why=waiting)
        with self._store.writing() as session:
            upsert(session, [OpeningStatusRow(run=self._settings.run, waiting=waiting)])


def run_progress(run: RunRow, jobs: int) -> RunProgress:
    """Returns the run's progress, with what a round of ``jobs`` jobs reserves."""
    need = most_reserved(jobs, run.max_units, run.price_per_unit, run.committee, run.juror_fee)
    return RunProgress(run.id, run.version, run.closed, run.rounds_opened, run.escrow, need)
