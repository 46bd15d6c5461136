"""Versions of this software: numbers such as 0.3 or 0.3.1, of which the missing ones are 0. PURE.

Only the numbers count: 0.3.1rc2 and 0.3.1+local are taken for 0.3.1, so that whoever tries a version before its day is
not shut out by it.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from protocol.errors import Misconfigured

RELEASE_PATTERN = r"^(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){0,2}$"
ReleaseText = Annotated[str, Field(pattern=RELEASE_PATTERN, max_length=20)]

_NUMBERS = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


def release_numbers(version: str) -> tuple[int, int, int]:
    """Returns the numbers of a version.

    Raises:
        Misconfigured: it begins with none.
    """
    found = _NUMBERS.match(version)
    if found is None:
        raise Misconfigured(f"invalid version {version[:40]!r}: expected numbers such as 0.3.1")
    major, minor, patch = (int(part or 0) for part in found.groups())
    return major, minor, patch


def is_older(version: str, least: str) -> bool:
    """Returns whether ``version`` is older than ``least``."""
    return release_numbers(version) < release_numbers(least)
