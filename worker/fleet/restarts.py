"""Decisions on processes that end: the pause before a restart, the reason of the end, a fleet's exit code. PURE."""

from __future__ import annotations

import json
from collections.abc import Sequence

from protocol.times import spell

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""Pause before the first restart, doubled for each one after it, and the longest."""
STEADY_SECONDS = 600.0
"""Time after which a process counts as having worked: its next end is the first again."""
LOOPING = 3
"""Ends in a row from which a node is said to end again and again."""
LONGEST_REASON = 300
"""Longest reason, in characters."""


def failures_after(failures: int, lasted_seconds: float) -> int:
    """Returns the ends in a row, with one more after ``failures`` of a process that lasted this long."""
    return 1 if lasted_seconds >= STEADY_SECONDS else failures + 1


def pause_after(failures: int) -> float:
    """Returns the seconds before the restart after so many ends in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30))


def reason_of(lines: Sequence[str], code: int) -> str:
    """Returns why a process ended, from the last lines of its log: an error that it logged, else its last words."""
    for line in reversed(lines):
        if line.startswith("assize: "):
            return line.removeprefix("assize: ")[:LONGEST_REASON]
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("error"):
            return str(event["error"])[:LONGEST_REASON]
    ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    words = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("{")), "")
    return f"{ended}: {words[:LONGEST_REASON]}" if words else ended


def loop_sentence(name: str, failures: int, reason: str, pause: float) -> str:
    """Returns the one sentence on a node that ends again and again."""
    return f"node {name} ended {failures} times in a row: {reason}; the next start is in {spell(pause)}"


def worst_code(codes: Sequence[int]) -> int:
    """Returns the exit code of a fleet from those of its nodes: 2 misconfigured, then 3 unavailable, then 1."""
    return next((code for code in (2, 3) if code in codes), int(any(codes)))
