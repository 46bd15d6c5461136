"""The version of this software that is installed, and warnings of rules that ask for a newer one.

Rules in effect bind the rounds that are opened under them, so a round goes on under the rules that its parties joined
at. Rules that are announced are looked at before they are in effect, in time for an update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import version as installed
from typing import Protocol

import structlog

from protocol.errors import AssizeError
from protocol.times import clock
from protocol.wire.releases import is_older
from protocol.wire.rules import Rules

LOOK_SECONDS = 60.0
"""Time between looks at announced rules, far less than any notice."""
CLOSE_SECONDS = 5.0

log = structlog.get_logger()


class RulesInView(Protocol):
    """Rules of a run by their hash, and the unix second from which they are in effect; 0 if they are."""

    @property
    def run(self) -> int:
        """The run."""

    @property
    def rules_hash(self) -> bytes:
        """Hash of the rules, as on chain."""

    @property
    def effective_at(self) -> int:
        """Unix second from which they are in effect, or 0."""


@cache
def own_version() -> str:
    """Returns the version that is installed."""
    return installed("assize")


def behind(run: int, rules: Rules, effective_at: int = 0, own: str | None = None) -> str:
    """Returns the sentence on rules that ask for a newer version than ``own``; empty if it will do. PURE but for it.

    Args:
        run: the run.
        rules: its rules.
        effective_at: unix second from which they are in effect; 0 if they are.
        own: a version; None takes the installed one.
    """
    have = own or own_version()
    if rules.least_version is None or not is_older(have, rules.least_version):
        return ""
    when = f" from {clock(effective_at)} on" if effective_at else ""
    return f"run {run} asks for assize {rules.least_version} or later{when}, and this is {have}: see assize update"


class ReleaseWatch:
    """Looks at the rules of one's runs from time to time, in a thread, and tells which ask for a newer version.

    Args:
        in_view: returns the rules to look at; may raise ``AssizeError``.
        rules_of: fetches the rules of a run by their hash; each is asked for until it has answered once.
        tell: takes the sentences after each look, none if all is well.
    """

    def __init__(
        self,
        in_view: Callable[[], Iterable[RulesInView]],
        rules_of: Callable[[int, bytes], Rules],
        tell: Callable[[Sequence[str]], None],
    ) -> None:
        self._in_view, self._rules_of, self._tell = in_view, rules_of, tell
        self._read: dict[bytes, Rules] = {}
        self._told: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="release", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def look(self) -> None:
        """Looks once; a run whose rules cannot be had is left out."""
        found = []
        for each in self._in_view():
            try:
                if each.rules_hash not in self._read:
                    self._read[each.rules_hash] = self._rules_of(each.run, each.rules_hash)
            except AssizeError as error:
                log.debug("rules_not_read", run=each.run, error=str(error))
                continue
            if sentence := behind(each.run, self._read[each.rules_hash], each.effective_at):
                found.append(sentence)
        for sentence in found:
            if sentence not in self._told:
                self._told.add(sentence)
                log.warning("version_behind", error=sentence)
        self._tell(found)

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                self.look()
            except AssizeError as error:
                log.debug("rules_not_seen", error=str(error))
            except Exception as error:  # the outermost loop of this thread: a warning must not end it
                log.warning("rules_not_seen", error=repr(error), exc_info=True)
            self._closed.wait(LOOK_SECONDS)
