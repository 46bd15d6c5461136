"""Credentials in URLs, masked wherever a URL is shown. PURE."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)([^/?#\s]*)@")
"""Name and password, or a token, before the host of a URL; a password may hold an @ itself."""


def masked(text: str) -> str:
    """Returns a text in which the URLs have no credentials: names stay, passwords and tokens become ``***``."""
    return _CREDENTIALS.sub(_mask, text)


def _mask(found: re.Match[str]) -> str:
    name, colon, _ = found[1].partition(":")
    return f"{name}:***@" if colon else "***@"
