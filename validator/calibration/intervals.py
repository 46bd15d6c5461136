"""Exact confidence bounds on proportions and Poisson means. PURE."""

from __future__ import annotations

import math

import numpy as np

CONFIDENCE = 0.95
"""Default confidence of stated bounds."""

BISECTIONS = 60


def most(seen: int, of: int, doubt: float = 1 - CONFIDENCE) -> float:
    """Returns the Clopper-Pearson upper bound: a larger share gives so few with probability below ``doubt``."""
    if seen >= of:
        return 1.0
    low, high = seen / of, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(seen, of, middle) > doubt else (low, middle)
    return high


def least(seen: int, of: int, doubt: float = 1 - CONFIDENCE) -> float:
    """Returns the Clopper-Pearson lower bound."""
    return 1.0 - most(of - seen, of, doubt)


def most_events(seen: int, doubt: float = 1 - CONFIDENCE) -> float:
    """Returns the upper bound of a Poisson mean after ``seen`` events."""
    low, high = float(seen), 2.0 * seen + 20.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 - beyond(seen, middle) > doubt else (low, middle)
    return high


def beyond(events: int, mean: float) -> float:
    """Returns the probability of more than ``events`` events under a Poisson law of ``mean``."""
    i = np.arange(events + 1, events + 60 + int(10 * mean), dtype=np.float64)
    first = -mean + (events + 1) * math.log(mean) - math.lgamma(events + 2) if mean > 0 else -math.inf
    logs = first + np.concatenate([[0.0], np.cumsum(np.log(mean / i[1:]))]) if mean > 0 else np.array([-math.inf])
    return float(np.exp(logs).sum())


def interval(seen: int, of: int) -> tuple[float, float]:
    """Returns the two-sided Clopper-Pearson interval of ``CONFIDENCE``."""
    doubt = (1 - CONFIDENCE) / 2
    return least(seen, of, doubt), most(seen, of, doubt)


def _at_most(seen: int, of: int, share: float) -> float:
    """Probability of ``seen`` or fewer of ``of``, each with probability ``share``."""
    if share in (0.0, 1.0):
        return float(share == 0.0 or seen >= of)
    i = np.arange(1, seen + 1, dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log((of - i + 1) / i))])
    logs += np.arange(seen + 1) * np.log(share) + (of - np.arange(seen + 1)) * np.log1p(-share)
    return float(np.exp(logs - logs.max()).sum() * np.exp(logs.max()))
