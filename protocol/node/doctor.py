"""``assize ROLE doctor``: examinations of one machine, key and network, each with a result and a way to mend it.

Each role lists its own examinations; those that every role shares are here and in ``protocol.node.commands.doctor``.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from protocol.errors import AssizeError, Misconfigured, Unavailable
from protocol.node.console import EXIT_REFUSED, show
from protocol.node.settings import NodeSettings
from protocol.node.wallet import Wallet

LEAST_DISK_BYTES = 2 << 30
"""Free disk space that every role needs at least."""

AGAIN_SECONDS = 0.3
"""Pause before what was out of reach is looked at once more."""

Found = TypeVar("Found")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one line.")]


@dataclass(frozen=True, slots=True)
class Examination:
    """One thing to look at.

    name  what is looked at
    look  returns what was found; raises ``AssizeError`` with what is wrong
    mend  what to do if it fails, unless the error says so itself
    """

    name: str
    look: Callable[[], str]
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one examination. ``mend`` is empty if it passed."""

    name: str
    ok: bool
    detail: str
    mend: str = ""


def examine(examinations: Iterable[Examination]) -> Iterator[Result]:
    """Carries out examinations in order; one that fails does not stop the others."""
    for each in examinations:
        try:
            yield Result(each.name, True, asked_again(each.look))
        except AssizeError as error:
            yield Result(each.name, False, str(error), each.mend)


def asked_again(look: Callable[[], Found]) -> Found:
    """Returns what ``look`` finds; looks once more where something was out of reach, as one connection may be lost."""
    try:
        return look()
    except Unavailable:
        time.sleep(AGAIN_SECONDS)
        return look()


def report(results: Iterable[Result], as_json: bool) -> None:
    """Prints results as a table or JSON; exits with ``EXIT_REFUSED`` if one failed."""
    found = list(results)
    rows = [{"check": each.name, "ok": each.ok, "found": each.detail, "mend": each.mend} for each in found]
    show(rows, as_json, "doctor")
    if not all(each.ok for each in found):
        raise SystemExit(EXIT_REFUSED)


def disk(folder: Path) -> Examination:
    """Examines the free space where ``folder`` is, or will be made."""

    def look() -> str:
        place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        free = shutil.disk_usage(place).free
        if free < LEAST_DISK_BYTES:
            raise Misconfigured(f"{free / 2**30:.1f} GiB free at {place}: expected at least 2 GiB")
        return f"{free / 2**30:.1f} GiB free at {place}"

    return Examination("disk", look, "free some space, or set another state folder")


class Key:
    """The key that settings name, opened once for all examinations that need it."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings

    @functools.cached_property
    def wallet(self) -> Wallet:
        """The wallet; raises ``Misconfigured`` if it does not open."""
        return self._settings.wallet()

    @property
    def address(self) -> str:
        """The key's address; raises ``Misconfigured`` if it does not open."""
        return self.wallet.address

    def examination(self) -> Examination:
        """Examines whether the keystore opens with its password."""
        return Examination("key", lambda: self.address)
