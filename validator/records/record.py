"""Records: evidence over the settled jobs of an owner's nodes, for cheats too small to detect in one job. PURE.

    job        x = log p1/p0 in nats, in three tests; that of its choices is centred and at least ``Sequential.least``,
               so that a drift of honest work cannot be spent
    test       s = max(0, s + x), job after job: a CUSUM, in which earlier honest work does not offset a cheat
    derived    the test over the jobs that this juror has measured itself: in its seat, or replayed; it starts anew
               after every job that it has not measured, so that nobody can select the jobs that count
    suspected  the same, with other jurors' statements for the jobs it has not measured: the highest of them counts,
               between ``CLEARING_SHARE`` and ``RAISING_SHARE`` of the bound. It decides which jobs are replayed
    verdict    if ``derived`` has reached ``Sequential.bound`` when a round opens, the jobs of its nodes are fraud

The tests detect an engine noisier than an honest one; flips toward the likelier token (a lower temperature); and flips
toward the less likely token (a higher temperature, or answers chosen for their reward). If an honest job has
E[exp x] <= 1 in each test, a test started at a given job reaches h with probability at most exp(-h). The three tests,
started at any of ``horizon_jobs`` jobs, then find an honest owner fraudulent with probability at most ``false_alarm``:
whatever other jurors state, since a derived test is the sum of consecutive jobs that end at the latest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile

import numpy as np

from protocol.wire.evidence import Finding, Measurements
from protocol.wire.reasons import Reason
from protocol.wire.rules import Sequential

RAISING_SHARE, CLEARING_SHARE = 4.0, -0.25
"""Most and least that statements of others on one job add to a suspicion, as shares of the bound. One captured round
clears nothing. A single statement may raise a suspicion, above the bound so that fair jobs after it do not hide it:
what condemns before one juror is replayed by all, and a replay outweighs what was stated."""

EVEN, LOPSIDED = 0.5, 0.9
"""Probability that a flip goes in one direction: for an honest engine, and under the alternative."""

TESTS = {
    "choices": "its choices fit a noisier engine",
    "upward": "its flips go to the likelier token",
    "downward": "its flips go to the less likely token",
}


@dataclass(frozen=True, slots=True)
class Ratios:
    """log p1/p0 of one job in each test, in nats."""

    choices: float
    upward: float
    downward: float


@dataclass(frozen=True, slots=True)
class EvidenceState:
    """State of an owner's three tests, in nats, each at least 0."""

    choices: float = 0.0
    upward: float = 0.0
    downward: float = 0.0

    def after(self, ratios: Ratios) -> EvidenceState:
        """Returns the state one job later."""
        return EvidenceState(*(max(0.0, getattr(self, test) + getattr(ratios, test)) for test in TESTS))

    @property
    def foremost(self) -> tuple[str, float]:
        """Name and value of the highest test."""
        name = max(TESTS, key=lambda test: float(getattr(self, test)))
        return name, getattr(self, name)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """An owner's tests in the eyes of one juror; see above."""

    suspected: EvidenceState = EvidenceState()
    derived: EvidenceState = EvidenceState()


Bundle = Mapping[int, Ratios]
"""Ratios from one juror's bundle by job, without the jobs that it could not measure."""


@dataclass(frozen=True, slots=True)
class NamedBundle:
    """A bundle named by a juror's revealed vote, and the juror's key."""

    juror: int
    key: str
    root: bytes


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A settled round, from the chain.

    bundles    bundles of the jurors that voted in the last attempt, without abstentions
    nodes      node of each submitted job
    owners     owner of that node
    condemned  owners that a majority found fraudulent by their record in this round
    version    the policy version
    listed     owner of every listed job, by job, whether submitted or not
    accepted   jobs that were accepted
    """

    round: int
    beacon: bytes
    run: int
    rules_hash: bytes
    attempt: int
    settled_in: int
    bundles: tuple[NamedBundle, ...]
    nodes: Mapping[int, int]
    owners: Mapping[int, str]
    condemned: frozenset[str]
    version: int = 0
    listed: tuple[str, ...] = ()
    accepted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RecordPoint:
    """The opening of a round: rounds of the same run and rules that settled in earlier blocks count for it.

    A job has ``groups_per_job`` prompts, with ``group_size`` rollouts of each.
    """

    run: int
    rules_hash: bytes
    opened_in: int
    sequential: Sequential
    groups_per_job: int = 1
    group_size: int = 1


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Figures of one settled round before one juror.

    derived  by job, measured by the juror itself
    seated   whether the juror's own bundle is among them: jobs it lacks could not be measured, and count nothing
    stated   bundles of the other jurors
    """

    derived: Bundle
    seated: bool
    stated: Sequence[Bundle]

    def statement(self, job: int, bound: float) -> Ratios | None:
        """Returns the highest that other jurors state of a job in each test, clipped; None: nothing."""
        said = [bundle[job] for bundle in self.stated if job in bundle]
        if not said:
            return None
        highest = (max(getattr(ratios, test) for ratios in said) for test in TESTS)
        return Ratios(*(max(CLEARING_SHARE * bound, min(RAISING_SHARE * bound, each)) for each in highest))

    def missing(self, settled: SettledRound, owner: str) -> tuple[int, ...]:
        """Returns the jobs of ``owner`` that the juror has not measured and could, ascending."""
        return () if self.seated else tuple(job for job in jobs_of(settled, owner) if job not in self.derived)


def ratios_of(measurements: Measurements | None) -> Ratios:
    """Returns the ratios of one job by one juror's measurements, 0 for a job that could not be measured."""
    if measurements is None:
        return Ratios(0.0, 0.0, 0.0)
    flips, up = (int(column.sum(dtype=np.int64)) for column in (measurements.flips_N, measurements.up_N))
    choices = float(measurements.llr_N.sum(dtype=np.float64))
    return Ratios(choices, lopsidedness(up, flips - up), lopsidedness(flips - up, up))


def bounded(ratios: Ratios, sequential: Sequential) -> Ratios:
    """Returns what a job of these ratios adds to a state. Flips are even at best, so their tests stay unbounded."""
    return replace(ratios, choices=max(sequential.least, ratios.choices))


def lopsidedness(towards: int, away: int) -> float:
    """Returns log p1/p0 of the given numbers of flips toward and away, in nats."""
    return towards * math.log(LOPSIDED / EVEN) + away * math.log((1 - LOPSIDED) / (1 - EVEN))


def jobs_of(settled: SettledRound, owner: str) -> list[int]:
    """Returns the jobs that nodes of ``owner`` submitted, ascending."""
    return sorted(job for job, of in settled.owners.items() if of == owner)


def record_after(
    record: OwnerRecord, owner: str, settled: SettledRound, figures: RoundFigures, sequential: Sequential
) -> OwnerRecord:
    """Returns the record of ``owner`` after a round."""
    if owner in settled.condemned:
        return OwnerRecord()  # the round has already been punished for this evidence
    suspected, derived = record.suspected, record.derived
    for job in jobs_of(settled, owner):
        own = figures.derived.get(job)
        stated = own if own is not None or figures.seated else figures.statement(job, sequential.bound)
        suspected = suspected if stated is None else suspected.after(bounded(stated, sequential))
        if own is not None:
            derived = derived.after(bounded(own, sequential))
        elif not figures.seated:
            derived = EvidenceState()
    return OwnerRecord(suspected, derived)


class Records:
    """Every owner's record after each settled round of one run under one set of rules, in chain order."""

    def __init__(self, sequential: Sequential) -> None:
        self._sequential = sequential
        self._after: dict[str, list[tuple[SettledRound, OwnerRecord]]] = {}

    def settle(self, settled: SettledRound, figures: RoundFigures) -> None:
        """Folds the next round."""
        for owner in set(settled.owners.values()):
            after = self.after(self._last(owner), owner, settled, figures)
            self._after.setdefault(owner, []).append((settled, after))

    def after(self, record: OwnerRecord, owner: str, settled: SettledRound, figures: RoundFigures) -> OwnerRecord:
        """Returns the record of ``owner`` after one more round."""
        return record_after(record, owner, settled, figures, self._sequential)

    def refold(self, owner: str, since: SettledRound, figures: Callable[[SettledRound], RoundFigures]) -> None:
        """Folds the rounds of ``owner`` again from ``since`` on, after jobs of that round were replayed."""
        after = self._after.get(owner, [])
        again = [settled for settled, _ in dropwhile(lambda each: each[0] is not since, after)]
        del after[len(after) - len(again) :]
        for settled in again:
            after.append((settled, self.after(self._last(owner), owner, settled, figures(settled))))

    def before(self, owner: str, block: int) -> list[tuple[SettledRound, OwnerRecord]]:
        """Returns the owner's rounds that settled before ``block``, each with the record after it, in chain order."""
        after = self._after.get(owner, [])
        return after[: bisect_left(after, block, key=lambda each: each[0].settled_in)]

    def _last(self, owner: str) -> OwnerRecord:
        after = self._after.get(owner)
        return after[-1][1] if after else OwnerRecord()


def excursion(past: Sequence[tuple[SettledRound, OwnerRecord]], bound: float) -> list[SettledRound]:
    """Returns the rounds behind a suspicion that has reached ``bound`` unproved, newest first; none: no suspicion."""
    if not past or past[-1][1].derived.foremost[1] >= bound or past[-1][1].suspected.foremost[1] < bound:
        return []
    test, _ = past[-1][1].suspected.foremost
    return [settled for settled, _ in takewhile(lambda each: getattr(each[1].suspected, test) > 0.0, reversed(past))]


def finding_on(state: EvidenceState, bound: float) -> Finding | None:
    """Returns the finding against every job of an owner whose state reaches ``bound``, or None."""
    test, reached = state.foremost
    if reached < bound:
        return None
    return Finding(Reason.SEQUENCE, f"settled jobs together: {TESTS[test]}", None, reached, bound)
