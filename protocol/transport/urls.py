"""What counts as an address to fetch from."""

from __future__ import annotations

import httpx


def is_http(url: str) -> bool:
    """Is ``url`` an absolute http:// or https:// URL with a host?"""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, TypeError):
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)
