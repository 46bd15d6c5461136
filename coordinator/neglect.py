"""Whether a worker leaves out, or spoils, more jobs than the run's budget allows. PURE, from chain facts alone.

Leaving out the samples one dislikes is a cheat as well. A node's share of a round is spoilt where any of its jobs ended
void or was never handed in; how many is no matter, since a deadline missed or a reorganisation takes all of them at
once. Of an honest node with c jobs that happens with probability 1 − (1 − outage_budget)·(1 − void_budget)^c at most.
The alternative is ten times that rate. Evidence is a CUSUM over the node's settled rounds, as for its choices; at
``Sequential.neglect_bound`` it is listed no more.
"""

from __future__ import annotations

import math

from protocol.wire.rules import Sequential

TIMES = 10
"""How many times the honest rate the alternative is. By default a node that spoils each round of 4 jobs is left out
after 14 of them, one that spoils every third after some 90, and one that spoils up to a fifth of them never."""


def spoilt_rate(jobs: int, sequential: Sequential) -> float:
    """Returns how often an honest node's share of ``jobs`` jobs is spoilt, at most."""
    return 1.0 - (1.0 - sequential.outage_budget) * (1.0 - sequential.void_budget) ** jobs


def neglect_after(neglect: float, jobs: int, spoilt: bool, sequential: Sequential) -> float:
    """Returns the evidence, in nats, after one more settled round in which the node had ``jobs`` jobs."""
    honest = spoilt_rate(jobs, sequential)
    kept = (1.0 - honest) ** TIMES
    ratio = math.log((1.0 - kept) / honest) if spoilt else math.log(kept / (1.0 - honest))
    return max(0.0, neglect + ratio)
