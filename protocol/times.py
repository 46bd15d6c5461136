"""Times of the chain as people read them; everything else computes in Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from protocol.errors import Misconfigured

_DURATION = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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


def second_of(text: str, now: float) -> float:
    """Returns the Unix second of a duration from ``now`` as typed, or of a date and time; without a zone, in UTC.

    Raises:
        Misconfigured: it is neither, or lies in the past.
    """
    typed = text.strip()
    found = _DURATION.fullmatch(typed.lower())
    try:
        at = now + int(found[1]) * _UNIT_SECONDS[found[2]] if found else _moment(typed)
    except (ValueError, OverflowError):
        raise Misconfigured(
            f"invalid time {text[:40]!r}: expected a duration such as 90m, 2h or 3d, or a time such as 2026-12-24T18Z"
        ) from None
    if at <= now:
        raise Misconfigured(f"invalid time {text[:40]!r}: expected one that is yet to come")
    return at


def _moment(text: str) -> float:
    read = datetime.fromisoformat(text)
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
