"""Scores of Reasoning Gym. Imported by the grading server alone, in a sandbox, as some evaluate what they get."""

from __future__ import annotations

import math
from typing import Any

from reasoning_gym import get_score_answer_fn  # type: ignore[import-untyped]

_BOARDS = {"arc_agi", "rearc"}
"""Scorers that compare with a board of tuples, which a task's JSON has as lists."""


def judge(expected: Any, given: str) -> tuple[float, str]:
    """Returns reward and reason for an answer to ``expected``, the entry of a dataset."""
    name, entry = expected["dataset"], expected["entry"]
    if name in _BOARDS:
        entry["metadata"]["output"] = tuple(map(tuple, entry["metadata"]["output"]))
    score = float(get_score_answer_fn(name)(given, entry))
    reward = min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0
    return reward, f"{name} scores {reward:.2f}"
