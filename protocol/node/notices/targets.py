"""Targets of notices: URLs in Apprise's notation, kept in a file because they hold secrets.

Neither a URL nor a part of it is printed or logged; a target is named by its line and its scheme.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog

from protocol.errors import Misconfigured, accessing

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Target:
    """A target: ``name`` may be shown, ``id`` stands for it in the journal, ``url`` is secret."""

    name: str
    id: str
    url: str

    def __repr__(self) -> str:
        return f"Target({self.name})"

    def send(self, title: str, text: str) -> bool:
        """Sends a message; returns whether the target took it."""
        apprise = _apprise()
        try:
            return apprise.Apprise.instantiate(self.url).notify(body=text, title=title) is True
        except Exception as error:  # of any of its plugins; it may hold the URL
            log.warning("target_failed", target=self.name, error=type(error).__name__)
            return False


def read_targets(file: Path) -> list[Target]:
    """Reads a file of targets, one URL a line; empty lines and those that begin with # are left out.

    Raises:
        Misconfigured: the file cannot be read or is empty, Apprise is not installed or does not know a URL's form.
    """
    with accessing(f"read the targets {file}"):
        lines = file.read_text().splitlines()
    found = [
        _target(file, number, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not found:
        raise Misconfigured(f"{file} names no target: write one Apprise URL a line, such as ntfy://TOPIC")
    return found


def _target(file: Path, number: int, url: str) -> Target:
    if _apprise().Apprise.instantiate(url, suppress_exceptions=True) is None:
        raise Misconfigured(
            f"{file}, line {number}: Apprise does not understand this URL; expected such as ntfy://TOPIC"
        )
    return Target(f"target {number} ({url.partition(':')[0]})", sha256(url.encode()).hexdigest()[:16], url)


def _apprise() -> Any:
    try:
        import apprise
    except ImportError:
        raise Misconfigured("notices need the library Apprise: install assize[notices]") from None
    logging.getLogger("apprise").disabled = True  # it logs URLs
    return apprise
