"""Amounts of tokens and credits as people type and read them; everything else computes in wei.

    48      1.5      1,250      "20 ASZ"      5wei      all

A number without a unit counts tokens (ASZ), never wei. Printed amounts can be typed again.
"""

from __future__ import annotations

import re

from protocol.errors import Misconfigured

UNIT = "ASZ"
WEI = 10**18
ALL = "all"
LARGEST_WEI = 2**128 - 1
"""Largest amount that the contracts take."""

_AMOUNT = re.compile(r"(?P<whole>\d+|\d{1,3}(?:,\d{3})+)?(?:\.(?P<part>\d+))?(?: ?(?P<unit>asz|wei))?", re.ASCII)
_EXPECTED = f"expected tokens such as 48, 1.5 or '20 {UNIT}', or a whole number of wei such as 5wei"


def wei_of(text: str, most: int | None = None) -> int:
    """Returns the wei of an amount as typed.

    Args:
        text: the amount.
        most: the wei that ``all`` stands for; None where it stands for nothing.

    Raises:
        Misconfigured: the text is no amount, is finer than a wei, or more than contracts can count.
    """
    wei = _wei_of(text, most)
    if wei > LARGEST_WEI:
        raise Misconfigured(f"invalid amount {text[:24]!r}…: contracts count up to {tokens(LARGEST_WEI)}")
    return wei


def _wei_of(text: str, most: int | None) -> int:
    typed = text.strip().lower()
    if typed == ALL and most is not None:
        return most
    found = _AMOUNT.fullmatch(typed)
    if found is None or not (found["whole"] or found["part"]):
        raise Misconfigured(f"invalid amount {text!r}: {_EXPECTED}{'' if most is None else ', or all'}")
    whole, part = int((found["whole"] or "0").replace(",", "")), (found["part"] or "").rstrip("0")
    if found["unit"] == "wei":
        if found["part"]:
            raise Misconfigured(f"invalid amount {text!r}: a wei cannot be divided")
        return whole
    if len(part) > 18:
        raise Misconfigured(f"invalid amount {text!r}: a token has 18 decimals, one wei each")
    return whole * WEI + int(part.ljust(18, "0"))


def positive_wei(text: str, most: int | None = None) -> int:
    """Returns the wei of an amount above zero as typed; see ``wei_of``."""
    wei = wei_of(text, most)
    if wei == 0:
        raise Misconfigured(f"invalid amount {text!r}: it is 0, expected more")
    return wei


def digits_of(wei: int) -> str:
    """Returns wei as tokens to the last wei, without trailing zeros and without the unit."""
    whole, rest = divmod(abs(wei), WEI)
    decimals = f"{rest:018d}".rstrip("0")
    return f"{'-' if wei < 0 else ''}{whole:,}{'.' + decimals if decimals else ''}"


def tokens(wei: int) -> str:
    """Returns an amount of tokens or credits with its unit."""
    return f"{digits_of(wei)} {UNIT}"


def coin(wei: int) -> str:
    """Returns an amount of the chain's own coin, which pays for gas."""
    return f"{digits_of(wei)} coin"


def rounded(wei: int) -> str:
    """Returns wei as tokens for a glance: two decimals, or three significant digits below a hundredth."""
    if wei == 0 or abs(wei) >= WEI // 100:
        whole, cents = divmod((abs(wei) + WEI // 200) * 100 // WEI, 100)
        return f"{'-' if wei < 0 else ''}{whole:,}.{cents:02d}"
    step = 10 ** max(len(str(abs(wei))) - 3, 0)
    return digits_of((abs(wei) + step // 2) // step * step * (1 if wei > 0 else -1))
