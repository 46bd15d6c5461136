"""Records: evidence accumulated over a node's settled jobs, for cheats too small to detect in one job. PURE.

    job      three numbers from each juror's bundle, x = log p1/p0 in nats; the committee's median of each counts
    test     s = max(0, s + x), job after job: a CUSUM, in which earlier honest work does not offset a cheat
    verdict  if s has reached ``Sequential.bound`` when a round opens, the node's jobs in that round are fraud

The tests detect an engine noisier than an honest one; flips toward the likelier token (a lower temperature); and flips
toward the less likely token (a higher temperature, or answers chosen for their reward). If an honest job has
E[exp x] <= 1 in each test, a test started at a given job reaches h with probability at most exp(-h). The three tests,
started at any of ``horizon_jobs`` jobs, then find an honest node fraudulent with probability at most ``false_alarm``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np

from protocol.wire.evidence import Finding, Measurements
from protocol.wire.reasons import Reason

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
    """State of a node's three tests, in nats, each at least 0."""

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
    condemned  nodes that a majority found fraudulent by their record in this round
    """

    round: int
    beacon: bytes
    run: int
    rules_hash: bytes
    attempt: int
    settled_in: int
    bundles: tuple[NamedBundle, ...]
    nodes: Mapping[int, int]
    condemned: frozenset[int]


@dataclass(frozen=True, slots=True)
class RecordPoint:
    """The opening of a round: rounds of the same run and rules that settled in earlier blocks count for it."""

    run: int
    rules_hash: bytes
    opened_in: int


def ratios_of(measurements: Measurements) -> Ratios:
    """Returns the ratios of one job by one juror's measurements."""
    flips, up = (int(column.sum(dtype=np.int64)) for column in (measurements.flips_N, measurements.up_N))
    choices = float(measurements.llr_N.sum(dtype=np.float64))
    return Ratios(choices, lopsidedness(up, flips - up), lopsidedness(flips - up, up))


def lopsidedness(towards: int, away: int) -> float:
    """Returns log p1/p0 of the given numbers of flips toward and away, in nats."""
    return towards * math.log(LOPSIDED / EVEN) + away * math.log((1 - LOPSIDED) / (1 - EVEN))


def median_of(said: Sequence[Ratios], voters: int) -> Ratios | None:
    """Returns the median in each test; None unless a majority of the ``voters`` measured the job.

    An even number of values gives the lower of the two in the middle, in favour of the node.
    """
    if 2 * len(said) <= voters:
        return None
    return Ratios(*(median_low(getattr(ratios, test) for ratios in said) for test in TESTS))


def state_after(state: EvidenceState, node: int, settled: SettledRound, bundles: Mapping[int, Bundle]) -> EvidenceState:
    """Returns the state of ``node`` after a round; ``bundles`` are by juror, and a missing one counts nothing."""
    if node in settled.condemned:
        return EvidenceState()  # the round has already been punished for this evidence
    there = [bundles[named.juror] for named in settled.bundles if named.juror in bundles]
    for job in sorted(job for job, of in settled.nodes.items() if of == node):
        ratios = median_of([bundle[job] for bundle in there if job in bundle], len(settled.bundles))
        state = state if ratios is None else state.after(ratios)
    return state


class Records:
    """Every node's state after each settled round of one run under one set of rules, in chain order."""

    def __init__(self) -> None:
        self._after: dict[int, list[tuple[int, EvidenceState]]] = {}

    def settle(self, settled: SettledRound, bundles: Mapping[int, Bundle]) -> None:
        """Folds the next round."""
        for node in set(settled.nodes.values()):
            after = self._after.setdefault(node, [])
            before = after[-1][1] if after else EvidenceState()
            after.append((settled.settled_in, state_after(before, node, settled, bundles)))

    def before(self, node: int, block: int) -> EvidenceState:
        """Returns the state of ``node`` before ``block``; rounds that settled in it or later do not count."""
        for settled_in, state in reversed(self._after.get(node, ())):
            if settled_in < block:
                return state
        return EvidenceState()


def finding_on(state: EvidenceState, bound: float) -> Finding | None:
    """Returns the finding against every job of a node whose state reaches ``bound``, or None."""
    test, reached = state.foremost
    if reached < bound:
        return None
    return Finding(Reason.SEQUENCE, f"settled jobs together: {TESTS[test]}", None, reached, bound)
