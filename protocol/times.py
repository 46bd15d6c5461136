"""Times of the chain as people read them; everything else computes in Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def clock(second: int) -> str:
    """Returns a Unix second as date and time in UTC; the number where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"second {second}"


def spell(seconds: float) -> str:
    """Returns a duration in its two largest units, such as 4.8 s, 3 min 5 s or 2 d 4 h."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)
