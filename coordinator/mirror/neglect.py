"""Whether a worker leaves out, or spoils, more jobs than the run's budget allows. PURE, from chain facts alone.

Leaving out the samples one dislikes is a cheat as well. A node's share of a round is spoilt where any of its jobs ended
void or was never handed in; how many is no matter, since a deadline missed or a reorganisation takes all of them at
once. Of an honest node with c jobs that happens with probability 1 − (1 − outage_budget)·(1 − void_budget)^c at most.
The alternative is ten times that rate. Evidence is a CUSUM over the node's settled rounds, as for its choices; at
``Sequential.neglect_bound`` it is listed no more.

A machine that is down misses every round in flight: of rounds one after another in which a node handed in nothing at
all, only the first counts. Whoever picks its rounds that way gets a count for each time it comes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocol.wire.rules import Sequential

TIMES = 10
"""How many times the honest rate the alternative is. By default a node that spoils each round of 4 jobs is left out
after 14 of them, one that spoils every third after some 90, and one that spoils up to a fifth of them never."""


@dataclass(frozen=True, slots=True)
class Neglect:
    """The evidence so far, in nats, and whether the node handed in nothing in the last round it was listed in."""

    evidence: float = 0.0
    absent: bool = False


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What became of a node's jobs in a settled round: how many it had, handed in, and had found void or not at all."""

    jobs: int
    submitted: int
    lost: int


def spoilt_rate(jobs: int, sequential: Sequential) -> float:
    """Returns how often an honest node's share of ``jobs`` jobs is spoilt, at most."""
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
