"""Progress of a run: its newest rounds and versions, its escrow, and how fast that is spent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ledger import facts
from ledger.facts.fact import Wide
from ledger.queries import lookup
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES
from protocol.errors import Rejected

ROUNDS = 20
"""Newest rounds by which the present rate is measured."""
ENDED = ("settled", "void")
SLASHES = 3
"""Newest slashes told."""


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """A round's jobs by outcome; ``missing`` were not handed in, ``pending`` have no verdict yet. ``paid`` in wei."""

    round: int
    version: int
    state: str
    opened_at: int
    jobs: int
    accepted: int
    void: int
    fraud: int
    unavailable: int
    pending: int
    missing: int
    paid: Wide


@dataclass(frozen=True, slots=True)
class VersionProgress:
    """A version: jobs that it was trained on, and the versions by which they were behind; None without jobs."""

    version: int
    timestamp: int
    jobs: int
    staleness: float | None


@dataclass(frozen=True, slots=True)
class RunOutlook:
    """A run as it goes on.

    Args:
        staleness: versions by which the newest version's jobs were behind, on average; None before it was trained.
        rounds: the newest rounds, newest first.
        paid: wei paid in all.
        slashes: the newest slashes in its rounds, newest first.
    """

    run: int
    version: int
    versions: int
    published_at: int
    closed: bool
    staleness: float | None
    rounds: tuple[RoundProgress, ...]
    open_rounds: int
    escrow: Wide
    reserved: Wide
    paid: Wide
    slashes: tuple[facts.Slash, ...]

    @property
    def a_version(self) -> int | None:
        """Mean cost of a version in wei; None before the first."""
        return self.paid // self.versions if self.versions else None


def run_progress(connection: Connection, run: int, most_rounds: int = ROUNDS) -> RunOutlook:
    """Returns the progress of a run with its newest rounds; raises ``Rejected`` if there is no such run."""
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        raise Rejected(f"there is no run {run}")
    (newest,) = lookup.newest(connection, facts.Checkpoint, None, 1, run=run)
    rounds = _newest_rounds(connection, run, most_rounds)
    outcomes = _outcomes(connection, [each.round for each in rounds])
    return RunOutlook(
        run=run,
        version=fact.version,
        versions=_versions(connection, run),
        published_at=newest.timestamp,
        closed=fact.closed,
        staleness=version_progress(connection, run, [newest])[0].staleness,
        rounds=tuple(_progress(each, outcomes[each.round]) for each in rounds),
        open_rounds=sum(each.state not in ENDED for each in rounds),
        escrow=fact.escrow,
        reserved=fact.reserved,
        paid=fact.paid,
        slashes=_newest_slashes(connection, run),
    )


def _newest_rounds(connection: Connection, run: int, most: int) -> list[facts.Round]:
    table = TABLES[facts.Round]
    wanted = select(table).where(table.c.run == run, table.c.parent == 0).order_by(table.c.round.desc()).limit(most)
    return [fact_of(facts.Round, row) for row in connection.execute(wanted)]


def _versions(connection: Connection, run: int) -> int:
    """Returns the number of versions after the first."""
    table = TABLES[facts.Checkpoint]
    wanted = select(func.count()).select_from(table).where(table.c.run == run, table.c.version > 0)
    return int(connection.execute(wanted).scalar_one())


def _newest_slashes(connection: Connection, run: int) -> tuple[facts.Slash, ...]:
    slashes, rounds = TABLES[facts.Slash], TABLES[facts.Round]
    of_run = select(rounds.c.round).where(rounds.c.round == slashes.c.round, rounds.c.run == run)
    wanted = select(slashes).where(of_run.exists())  # from the newest slash on, not from every round of the run
    in_order = wanted.order_by(slashes.c.block_number.desc(), slashes.c.log_index.desc()).limit(SLASHES)
    return tuple(fact_of(facts.Slash, row) for row in connection.execute(in_order))


def _outcomes(connection: Connection, rounds: list[int]) -> defaultdict[int, Counter[str]]:
    """Returns the number of jobs handed in, by round and verdict."""
    jobs = TABLES[facts.Job].c
    wanted = select(jobs.round, jobs.verdict, func.count()).where(jobs.round.in_(rounds))
    found = defaultdict[int, Counter[str]](Counter)
    for round_, verdict, count in connection.execute(wanted.group_by(jobs.round, jobs.verdict)):
        found[round_][verdict] = count
    return found


def _progress(round_: facts.Round, verdicts: Counter[str]) -> RoundProgress:
    return RoundProgress(
        round=round_.round,
        version=round_.policy_version,
        state=round_.state,
        opened_at=round_.opened_at,
        jobs=round_.jobs,
        accepted=verdicts["accepted"],
        void=verdicts["void"],
        fraud=verdicts["fraud"],
        unavailable=verdicts["unavailable"],
        pending=verdicts["submitted"],
        missing=round_.jobs - verdicts.total() if round_.state != "open" else 0,
        paid=round_.paid,
    )


def version_progress(
    connection: Connection, run: int, checkpoints: Sequence[facts.Checkpoint]
) -> tuple[VersionProgress, ...]:
    """Returns the progress of these versions of a run, in their order."""
    if not checkpoints:
        return ()
    numbers = [each.version for each in checkpoints]
    used, rounds = TABLES[facts.Consumption].c, TABLES[facts.Round].c
    wanted = select(used.version, used.jobs, rounds.policy_version).join(
        TABLES[facts.Round], rounds.round == used.round
    )
    found = defaultdict[int, list[tuple[int, int]]](list)
    within = (used.run == run, used.version.between(min(numbers), max(numbers)))
    for version, jobs, policy in connection.execute(wanted.where(*within)):
        found[version].append((jobs.bit_count(), policy))
    return tuple(_version(each, found[each.version]) for each in checkpoints)


def _version(made: facts.Checkpoint, used: list[tuple[int, int]]) -> VersionProgress:
    """Returns a version from the jobs of each round that it was trained on, and the policy that made them."""
    jobs = sum(count for count, _ in used)
    behind = sum(count * (made.previous - policy) for count, policy in used)
    return VersionProgress(made.version, made.timestamp, jobs, behind / jobs if jobs else None)


def spent_per_second(rounds: Sequence[RoundProgress], now: int) -> float | None:
    """Returns the wei a second that the newest ``ROUNDS`` cost; None before one has ended. PURE."""
    ended = [each for each in rounds[:ROUNDS] if each.state in ENDED]
    if not ended:
        return None
    span = now - min(each.opened_at for each in ended)
    return sum(each.paid for each in ended) / span if span > 0 else None
