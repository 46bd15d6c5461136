"""Evidence that a worker omits or spoils more jobs than the run's budget allows. PURE, from chain facts alone.

Omitting unwanted samples is a form of cheating. A node's part of a round is spoilt if any of its jobs ended void or
was never submitted; the number does not matter, since a missed deadline or a reorganisation affects all of them at
once. For an honest node with c jobs the probability is at most 1 − (1 − outage_budget)·(1 − void_budget)^c. The
alternative hypothesis is ten times that rate. Evidence is a CUSUM over the node's settled rounds, as for its choices;
a node whose evidence reaches ``Sequential.neglect_bound`` is no longer listed.

A machine that is down misses every round in flight, so of consecutive rounds without any submission only the first
counts. A node that selects its rounds in this way is counted each time it comes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocol.wire.rules import Sequential

TIMES = 10
"""Ratio of the alternative rate to the honest rate. By default a node that spoils each round of 4 jobs is excluded
after 14 rounds, one that spoils every third after some 90, and one that spoils up to a fifth never."""


@dataclass(frozen=True, slots=True)
class Neglect:
    """The evidence so far, in nats, and whether the node submitted nothing in the last round in which it was listed."""

    evidence: float = 0.0
    absent: bool = False


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """Numbers of a node's jobs in a settled round: listed, submitted, and lost (void or never submitted)."""

    jobs: int
    submitted: int
    lost: int


def spoilt_rate(jobs: int, sequential: Sequential) -> float:
    """Returns the highest probability that an honest node spoils its part of ``jobs`` jobs."""
    return 1.0 - (1.0 - sequential.outage_budget) * (1.0 - sequential.void_budget) ** jobs


def neglect_after(before: Neglect, share: NodeOutcome, sequential: Sequential) -> Neglect:
    """Returns the record after one more settled round."""
    absent = not share.submitted
    if absent and before.absent:
        return before
    honest = spoilt_rate(share.jobs, sequential)
    kept = (1.0 - honest) ** TIMES
    ratio = math.log((1.0 - kept) / honest) if share.lost else math.log(kept / (1.0 - honest))
    return Neglect(max(0.0, before.evidence + ratio), absent)
