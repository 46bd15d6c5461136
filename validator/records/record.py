"""A node's record: what its settled jobs say of it together, for cheats too slight to show in one. PURE.

    job      of each juror's bundle three numbers, x = log p1/p0 in nats; of each the median over the committee
    test     s = max(0, s + x), job after job: a CUSUM, in which honest work before a cheat is no credit to it
    verdict  where s reaches ``Sequential.bound`` as a round opens, the node's jobs in that round are fraud

The tests: a noisier engine than an honest one; flips that go to the likelier token (a lower temperature); flips that go
to the less likely one (a higher temperature, answers chosen for their reward). As long as an honest job has
E[exp x] <= 1 in each, a test started at any one job reaches h with probability exp(-h) at most, so that all three,
started at any of ``horizon_jobs``, condemn an honest node with probability ``false_alarm`` at most.
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
"""Probability that a flip goes one way: for an honest engine, and under the alternative."""

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
    """The state of a node's three tests, in nats, none below 0."""

    choices: float = 0.0
    upward: float = 0.0
    downward: float = 0.0

    def after(self, ratios: Ratios) -> EvidenceState:
        """Returns the state one job later."""
        return EvidenceState(
            max(0.0, self.choices + ratios.choices),
            max(0.0, self.upward + ratios.upward),
            max(0.0, self.downward + ratios.downward),
        )

    @property
    def foremost(self) -> tuple[str, float]:
        """The test that stands highest, and where."""
        name = max(TESTS, key=lambda test: float(getattr(self, test)))
        return name, getattr(self, name)


Bundle = Mapping[int, Ratios]
"""What one juror's bundle says, by job; jobs it could not measure are left out."""


@dataclass(frozen=True, slots=True)
class NamedBundle:
    """A bundle that a juror's revealed vote names, and the key that revealed it."""

    juror: int
    key: str
    root: bytes


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A round that has ended, as the chain has it.

    bundles  of the jurors that voted in the last attempt, abstentions aside
    nodes        by submitted job
    condemned    nodes of which a majority found the record guilty here
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
    """Returns what one juror's measurements of a job say."""
    flips, up = (int(column.sum(dtype=np.int64)) for column in (measurements.flips_N, measurements.up_N))
    choices = float(measurements.llr_N.sum(dtype=np.float64))
    return Ratios(choices, lopsidedness(up, flips - up), lopsidedness(flips - up, up))


def lopsidedness(towards: int, away: int) -> float:
    """Returns log p1/p0 of that many flips one way and the other, in nats."""
    return towards * math.log(LOPSIDED / EVEN) + away * math.log((1 - LOPSIDED) / (1 - EVEN))


def median_of(said: Sequence[Ratios], voters: int) -> Ratios | None:
    """Returns the median in each test; None where not a majority of the ``voters`` said anything.

    Of an even number the lower one in the middle: who is in doubt is not accused.
    """
    if 2 * len(said) <= voters:
        return None
    return Ratios(*(median_low(getattr(ratios, test) for ratios in said) for test in TESTS))


def state_after(state: EvidenceState, node: int, settled: SettledRound, bundles: Mapping[int, Bundle]) -> EvidenceState:
    """Returns where ``node`` stands after a round; ``bundles`` by juror: one that is not there counts nothing."""
    if node in settled.condemned:
        return EvidenceState()  # what it was condemned for is paid for
    there = [bundles[named.juror] for named in settled.bundles if named.juror in bundles]
    for job in sorted(job for job, of in settled.nodes.items() if of == node):
        ratios = median_of([bundle[job] for bundle in there if job in bundle], len(settled.bundles))
        state = state if ratios is None else state.after(ratios)
    return state


class Records:
    """Where every node stood after each settled round of one run under one set of rules; rounds come in chain order."""

    def __init__(self) -> None:
        self._after: dict[int, list[tuple[int, EvidenceState]]] = {}

    def settle(self, settled: SettledRound, bundles: Mapping[int, Bundle]) -> None:
        """Takes in the next round."""
        for node in set(settled.nodes.values()):
            after = self._after.setdefault(node, [])
            before = after[-1][1] if after else EvidenceState()
            after.append((settled.settled_in, state_after(before, node, settled, bundles)))

    def before(self, node: int, block: int) -> EvidenceState:
        """Returns where ``node`` stood when ``block`` began: rounds that settled in it or later do not count."""
        for settled_in, state in reversed(self._after.get(node, ())):
            if settled_in < block:
                return state
        return EvidenceState()


def finding_on(state: EvidenceState, bound: float) -> Finding | None:
    """Returns what is held against each job of a node that stands at or over the bound."""
    test, reached = state.foremost
    if reached < bound:
        return None
    return Finding(Reason.SEQUENCE, f"settled jobs together: {TESTS[test]}", None, reached, bound)
