"""Which faults strike, how often, and how often they did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

RATES = {
    "rpc refused": 0.02,
    "rpc answer lost": 0.02,
    "rpc slow down": 0.02,
    "rpc garbage": 0.02,
    "rpc internal error": 0.03,
    "rpc batch cut short": 0.01,
    "logs cut short": 0.05,
    "range too wide": 0.05,
    "endpoint lags": 0.15,
    "endpoint on a dead fork": 0.10,
    "reorganisation": 0.08,
    "deep reorganisation": 0.025,
    "transactions dropped": 0.03,
    "fees too low": 0.03,
    "nonce taken": 0.015,
    "killed at a request": 0.004,
    "killed at a statement": 0.0025,
    "killed at a commit": 0.02,
    "database locked": 0.003,
    "commit refused": 0.02,
    "asleep for an hour": 0.01,
}
"""Fault to its chance: of requests, statements, commits or passing blocks, whichever it strikes at.

Ponder's public simulation has RPC errors to 5%, reorganisations to 5%, deep ones to 2%, shutdowns to 0.2%.
"""


class Killed(BaseException):
    """The process ends here: nothing after this line runs, nothing is tidied up."""


@dataclass(slots=True)
class Faults:
    """The faults of one seed; ``struck`` counts them. ``healed`` ends them all."""

    chance: Random
    healed: bool = False
    struck: Counter[str] = field(default_factory=Counter)

    def strikes(self, kind: str) -> bool:
        """Whether this fault strikes now."""
        if self.healed or self.chance.random() >= RATES[kind]:
            return False
        self.struck[kind] += 1
        return True
