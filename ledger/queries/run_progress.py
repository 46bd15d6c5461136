"""Progress of a run: its newest rounds and versions, its escrow, and how fast that is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ledger import facts
from ledger.facts.fact import Wide
from ledger.queries.lookup import every
from ledger.queries.run_costs import slashes_of_run
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES
from protocol.errors import Rejected

ROUNDS = 20
"""Newest rounds by which the present rate is measured."""
ENDED = ("settled", "void")


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


def run_progress(connection: Connection, run: int) -> RunOutlook:
    """Returns the progress of a run; raises ``Rejected`` if there is no such run."""
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        raise Rejected(f"there is no run {run}")
    checkpoints = every(connection, facts.Checkpoint, run=run)
    rounds = _newest_rounds(connection, run)
    return RunOutlook(
        run=run,
        version=fact.version,
        versions=sum(each.version > 0 for each in checkpoints),
        published_at=checkpoints[-1].timestamp,
        closed=fact.closed,
        staleness=_staleness(connection, checkpoints[-1]),
        rounds=tuple(_progress(connection, each) for each in rounds),
        open_rounds=sum(each.state not in ENDED for each in rounds),
        escrow=fact.escrow,
        reserved=fact.reserved,
        paid=fact.paid,
        slashes=slashes_of_run(connection, run)[:-4:-1],
    )


def _newest_rounds(connection: Connection, run: int) -> list[facts.Round]:
    table = TABLES[facts.Round]
    wanted = select(table).where(table.c.run == run, table.c.parent == 0).order_by(table.c.round.desc()).limit(ROUNDS)
    return [fact_of(facts.Round, row) for row in connection.execute(wanted)]


def _progress(connection: Connection, round_: facts.Round) -> RoundProgress:
    handed_in = every(connection, facts.Job, round=round_.round)
    verdicts = Counter(job.verdict for job in handed_in)
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
        missing=round_.jobs - len(handed_in) if round_.state != "open" else 0,
        paid=round_.paid,
    )


def _staleness(connection: Connection, newest: facts.Checkpoint) -> float | None:
    """Returns by how many versions the jobs were behind on which the newest version was trained."""
    behind = []
    for each in every(connection, facts.Consumption, run=newest.run, version=newest.version):
        round_ = find_fact(connection, facts.Round, each.round)
        if round_ is not None:
            behind += [newest.previous - round_.policy_version] * each.jobs.bit_count()
    return sum(behind) / len(behind) if behind else None


def spent_per_second(rounds: Sequence[RoundProgress], now: int) -> float | None:
    """Returns the wei a second that the newest rounds cost; None before one has ended. PURE."""
    ended = [each for each in rounds if each.state in ENDED]
    if not ended:
        return None
    span = now - min(each.opened_at for each in ended)
    return sum(each.paid for each in ended) / span if span > 0 else None
