"""``assize ROLE doctor``: examinations of one machine, key and network, each with a result and a way to mend it.

Each role lists its own examinations; those that every role shares are here and in ``protocol.node.commands.doctor``.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from protocol.errors import AssizeError, Misconfigured, Unavailable, accessing
from protocol.node.console import EXIT_REFUSED, show
from protocol.node.settings import NodeSettings
from protocol.node.wallet import Wallet

LEAST_DISK_BYTES = 2 << 30
"""Free disk space that every role needs at least."""

METRICS_SECONDS, MOST_ANSWER_BYTES = 2.0, 1 << 20
"""Longest wait for an answer of the metrics port, and most of it that is read."""

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


def writable(folder: Path) -> Examination:
    """Examines whether files can be written in ``folder``, which is made if it is not there."""

    def look() -> str:
        with accessing(f"write in {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0")
        return str(folder)

    return Examination("state folder", look, "let this user write there, or set another state folder")


def metrics_port(port: int, host: str) -> Examination:
    """Examines whether the port of metrics is free, or serves those of a role that runs."""

    def look() -> str:
        if not port:
            return "off: Prometheus sees nothing of this role; set metrics_port"
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return f"{host}:{port} is free"
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise Misconfigured(f"cannot serve metrics at {host}:{port}: {error.strerror}") from error
        if b"assize_" in _answer_of(host, port):
            return f"{host}:{port} serves the metrics of a running role"
        raise Misconfigured(f"another program has port {port}")

    return Examination("metrics", look, "set another metrics_port or metrics_host")


def _answer_of(host: str, port: int) -> bytes:
    """Returns the beginning of what a server of metrics answers; nothing where none does."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with contextlib.suppress(OSError), socket.create_connection((here, port), timeout=METRICS_SECONDS) as asked:
        asked.sendall(f"GET /metrics HTTP/1.0\r\nHost: {here}\r\n\r\n".encode())
        answer = b""
        while b"assize_" not in answer and len(answer) < MOST_ANSWER_BYTES and (piece := asked.recv(65536)):
            answer += piece
        return answer
    return b""


def of_settings(settings: NodeSettings) -> tuple[Examination, ...]:
    """Examines what every daemon needs of its machine: disk, state folder and metrics port."""
    state = settings.state_dir
    return disk(state), writable(state), metrics_port(settings.metrics_port, settings.metrics_host)


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
