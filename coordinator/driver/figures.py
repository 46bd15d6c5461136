"""Figures of a run for those who watch its coordinator: rounds, jobs, nodes, and how far the escrow goes."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping

from prometheus_client import Gauge

from coordinator.driver.pacing import RunProgress
from coordinator.mirror.market import Market
from protocol.chain.reading.tail import READ
from protocol.chain.structs import State

ROUNDS = Gauge("assize_coordinator_rounds", "Rounds under way by state, those of appeals included", ["run", "state"])
OPENED = Gauge("assize_coordinator_rounds_opened", "Rounds opened so far", ["run"])
VOID = Gauge("assize_coordinator_rounds_void", "Rounds that ended void so far", ["run"])
NEWEST = Gauge(
    "assize_coordinator_newest_round_timestamp_seconds",
    "When the newest round was opened; before the first, when the process began to drive",
    ["run"],
)
JOBS = Gauge(
    "assize_coordinator_jobs", "Jobs so far by verdict; those never submitted count as void", ["run", "verdict"]
)
ESCROW = Gauge("assize_coordinator_escrow_rounds", "Rounds that the run's free escrow pays for", ["run"])
VERSION = Gauge("assize_coordinator_version", "Newest version of the run's model", ["run"])
LEASED = Gauge("assize_coordinator_leased_nodes", "Nodes whose heartbeats are in time", ["run"])
CLAIMS = Gauge("assize_coordinator_pending_claims", "Submissions stored and not on chain yet", ["run"])

STATES = (State.OPEN, State.CLOSED, State.VOTING, State.TALLIED)


def show_run(market: Market, progress: RunProgress, leased: int, claims: Mapping[int, int], began: float) -> None:
    """Shows a run of the market: its ``progress``, how many nodes hold a lease, and the claims that wait by round.

    It has been driven here since ``began`` (unix seconds).
    """
    run, name = market.runs[progress.run], str(progress.run)
    under_way = [market.rounds[number] for number in market.live if market.rounds[number].run == run.id]
    for state, count in by_state(each.state for each in under_way).items():
        ROUNDS.labels(name, state).set(count)
    OPENED.labels(name).set(run.rounds_opened)
    VOID.labels(name).set(run.rounds_void)
    newest = next(market.rounds_of(run.id), None)
    NEWEST.labels(name).set(began if newest is None else newest.opened_at)
    for verdict, jobs in (("accepted", run.jobs_accepted), ("void", run.jobs_void), ("fraud", run.jobs_fraud)):
        JOBS.labels(name, verdict).set(jobs)
    ESCROW.labels(name).set(progress.escrow // progress.need if progress.need else 0)
    VERSION.labels(name).set(run.version)
    LEASED.labels(name).set(leased)
    own = (count for number, count in claims.items() if number in market.rounds and market.rounds[number].run == run.id)
    CLAIMS.labels(name).set(sum(own))


def by_state(states: Iterable[int]) -> dict[str, int]:
    """Returns how many rounds are in each state that is none of an end, 0 included. PURE."""
    counts = Counts(states)
    return {state.name.lower(): counts[state] for state in STATES}


def hide_runs() -> None:
    """Shows no run any more: another process drives, and what was shown here grows old."""
    for gauge in (ROUNDS, OPENED, VOID, NEWEST, JOBS, ESCROW, VERSION, LEASED, CLAIMS, READ):
        gauge.clear()
