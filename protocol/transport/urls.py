"""Validity of URLs to fetch from."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx


def is_http(url: str) -> bool:
    """Returns whether ``url`` is an absolute http:// or https:// URL with a host."""
    try:
        parsed, host = httpx.URL(url), urlsplit(url).hostname  # urlsplit finds unbalanced brackets, httpx does not
    except (httpx.InvalidURL, ValueError, TypeError):
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host) and bool(host)
