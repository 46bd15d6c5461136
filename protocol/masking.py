"""Credentials in URLs, masked wherever a URL is shown. PURE."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)([^/?#\s]*)@")
"""Name and password, or a token, before the host of a URL; a password may hold an @ itself."""

_URL = re.compile(r"\w+://[^\s'\",;)]+")
_KEY = re.compile(r"(?<=[/=])(?!0x)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,63}(?![\w-])")
"""A key of an RPC provider in a path or query; a hash of 64 digits and an address are none."""


def masked(text: str) -> str:
    """Returns a text in which the URLs have no credentials: names stay, passwords, tokens and keys become ``***``."""
    return _URL.sub(lambda url: _KEY.sub("***", url[0]), _CREDENTIALS.sub(_mask, text))


def _mask(found: re.Match[str]) -> str:
    name, colon, _ = found[1].partition(":")
    return f"{name}:***@" if colon else "***@"
