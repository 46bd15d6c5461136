"""Text for a terminal from parties that are not trusted."""

from __future__ import annotations


def printable(text: str) -> str:
    """Returns text in which only line breaks and printable characters are left as they are; others are escaped."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)
