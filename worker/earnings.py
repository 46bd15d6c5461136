"""Outcome of a worker's rounds as the chain has them, and what it earned today.

The day's sums are kept in a file, so that a restart goes on with them and `assize worker watch` shows them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protocol.amounts import UNIT, rounded, wei_of
from protocol.chain.structs import Round, RunTerms, State, Verdict, verdict_in
from protocol.files import write_atomically
from protocol.times import spell

OUTCOMES = ("accepted", "void", "fraud", "unavailable", "missing")
"""Outcomes of a job, in the order in which people read them."""
REFUSED_KEPT = 5
EARNINGS_FILE = "earnings.json"


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """A node's jobs in a round that has ended: how many by verdict and how many were not handed in, and wei earned."""

    accepted: int
    fraud: int
    void: int
    unavailable: int
    missing: int
    earned: int

    def counts(self) -> dict[str, int]:
        """Returns the numbers of jobs that are not 0, by name."""
        named = {name: getattr(self, name) for name in ("accepted", "fraud", "void", "unavailable", "missing")}
        return {name: number for name, number in named.items() if number}


def outcome_of(round_: Round, jobs: int, units: Mapping[int, int], terms: RunTerms) -> RoundOutcome:
    """Returns the outcome of a node's jobs in an ended round. PURE.

    Args:
        round_: the round as stored; a void one pays nothing.
        jobs: the node's jobs in it.
        units: units of the jobs that it handed in, by job.
        terms: terms of the run at the rules that the node has joined; other terms need other rules.
    """
    handed_in = {job: wanted for job, wanted in units.items() if round_.submitted >> job & 1}
    if round_.state is State.VOID:
        return RoundOutcome(0, 0, len(handed_in), 0, jobs - len(handed_in), 0)
    verdicts = {job: verdict_in(round_.accepted, round_.fraud, job) for job in handed_in}
    found = Counter(verdicts.values())
    paid = sum(min(handed_in[job], terms.max_units) for job, verdict in verdicts.items() if verdict is Verdict.ACCEPTED)
    return RoundOutcome(
        accepted=found[Verdict.ACCEPTED],
        fraud=found[Verdict.FRAUD],
        void=found[Verdict.VOID],
        unavailable=found[Verdict.UNAVAILABLE],
        missing=jobs - len(handed_in),
        earned=paid * terms.price_per_unit,
    )


def refused_jobs(round_: Round, units: Mapping[int, int]) -> list[tuple[int, str]]:
    """Returns the jobs handed in that a round which has ended did not accept, with their verdicts. PURE."""
    if round_.state is State.VOID:
        return [(job, "void round") for job in sorted(units)]
    verdicts = ((job, verdict_in(round_.accepted, round_.fraud, job)) for job in sorted(units))
    return [(job, verdict.name.lower()) for job, verdict in verdicts if verdict is not Verdict.ACCEPTED]


def round_line(event: Mapping[str, Any]) -> str:
    """Returns the outcome of a round as a terminal shows it. PURE."""
    parts = [f"round {event['round']}", f"{event['jobs']} jobs"]
    if "seconds" in event:
        parts.append(spell(event["seconds"]))
    parts.append(" ".join(f"{name} {event[name]}" for name in OUTCOMES if event.get(name)))
    earned, today = (wei_of(event[name]) for name in ("earned", "today"))
    return "  ".join(part for part in (*parts, f"+{rounded(earned)} {UNIT}", f"today {rounded(today)}") if part)


def waits_for(reasons: Sequence[str]) -> str:
    """Returns what an idle worker waits for: jobs, or that it is listed for them. PURE."""
    return f"to be listed: {'; '.join(reasons)}" if reasons else "for jobs"


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A job that was handed in and not accepted, ``at`` a unix second; its round was opened in ``open_block``."""

    round: int
    job: int
    verdict: str
    open_block: int
    at: int


@dataclass(frozen=True, slots=True)
class DaysWork:
    """A worker's day in UTC: wei earned, jobs by outcome, and its last refused jobs of any day, newest first."""

    wei: int = 0
    jobs: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[RefusedJob, ...] = ()


class Earnings:
    """The day's work in UTC, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, outcome: RoundOutcome) -> int:
        """Adds an outcome; returns the day's sum. A file that cannot be read or written starts at 0."""
        kept = self.today()
        jobs = Counter(kept.jobs) + Counter(outcome.counts())
        self._keep(DaysWork(kept.wei + outcome.earned, dict(jobs), kept.refused))
        return kept.wei + outcome.earned

    def refuse(self, refused: RefusedJob) -> None:
        """Keeps a refused job among the last ones."""
        kept = self.today()
        self._keep(replace(kept, refused=(refused, *kept.refused)[:REFUSED_KEPT]))

    def today(self) -> DaysWork:
        """Returns the day's work; none where the file cannot be read."""
        try:
            kept = json.loads(self._file.read_text())
            refused = tuple(RefusedJob(**one) for one in kept.get("refused", ()))
            if kept["day"] == _day():
                return DaysWork(int(kept["wei"]), dict(kept.get("jobs", {})), refused)
            return DaysWork(refused=refused)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return DaysWork()

    def _keep(self, work: DaysWork) -> None:
        refused = [asdict(one) for one in work.refused]
        state = {"day": _day(), "wei": str(work.wei), "jobs": work.jobs, "refused": refused}
        with suppress(OSError):  # the sums are for people, and work goes on
            write_atomically(self._file, json.dumps(state).encode())


def _day() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")
