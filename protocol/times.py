"""Times of the chain as people read them; everything else computes in Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def clock(second: int) -> str:
    """Returns a Unix second as date and time in UTC; the number where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"second {second}"
