"""Supervision of the local network's processes: started, watched, restarted, and all of them ended.

A supervisor owns its child processes. Other terminals communicate with it through the state folder: ``network.json``
lists the services with their addresses, and a file ``requests/start-NAME`` asks for a restart of that service.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from protocol.errors import Misconfigured, Unavailable
from protocol.files import write_atomically

GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG = 1

_UNASKED = range(20_000, 32_768)
"""Ports below the operating system's ephemeral range, so that none is taken before it is bound."""
_ATTEMPTS = itertools.count(random.SystemRandom().randrange(len(_UNASKED)))

# Many small processes: one thread each, and freed memory is kept rather than returned at every step. Their settings are
# all given: a person's profile is none of theirs.
CHILD_ENVIRONMENT = {
    "ASSIZE_PROFILE": "",
    "ASSIZE_NETWORK": "",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
    "MALLOC_TRIM_THRESHOLD_": "536870912",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: its command, extra environment variables, and the URL it serves, if any.

    ``scratch`` is a private folder that is removed when the process ends.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    scratch: Path | None = None


class Supervisor:
    """Starts services, restarts them on request, and ends them all on any exit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.services: dict[str, ProcessSpec] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.reported: set[str] = set()
        for folder in ("logs", "requests"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def start(self, service: ProcessSpec) -> None:
        """Starts ``service``; its output goes to ``logs/NAME.log``."""
        self.services[service.name] = service
        with (self.root / "logs" / f"{service.name}.log").open("ab") as log:
            self.children[service.name] = subprocess.Popen(
                service.argv,
                env={**os.environ, **CHILD_ENVIRONMENT, **service.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self.reported.discard(service.name)
        self.write_state()

    def serve_requests(self) -> list[str]:
        """Restarts services that other terminals asked for; returns their names."""
        started = []
        for request in sorted((self.root / "requests").glob("start-*")):
            name = request.name.removeprefix("start-")
            request.unlink()
            if name in self.services:
                self.end(name)
                self.start(self.services[name])
                started.append(name)
        return started

    def fallen(self) -> list[tuple[str, int]]:
        """Returns (name, exit status) of services that ended unexpectedly since the last call."""
        ended = [
            (name, status)
            for name, child in self.children.items()
            if name not in self.reported and (status := child.poll()) is not None
        ]
        self.reported.update(name for name, _ in ended)
        if ended:
            self.write_state()
        return ended

    def status(self, service: ProcessSpec) -> int | None:
        """Returns the exit status of a service, or None while it runs."""
        return self.children[service.name].poll()

    def output(self, name: str) -> list[str]:
        """Returns the lines that a service has written so far."""
        return (self.root / "logs" / f"{name}.log").read_text(errors="replace").splitlines()

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the processor time used by each running service, child processes included."""
        used: dict[str, float] = {}
        for name, child in self.children.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(child.pid)
                times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
                used[name] = round(sum(each.user + each.system for each in times), 2)
        return used

    def end(self, name: str, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ends a service and its child processes: SIGTERM, then SIGKILL after ``grace_seconds``."""
        child = self.children.pop(name, None)
        if child is None:
            return
        signal_group(child, signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_seconds)
        finally:
            signal_group(child, signal.SIGKILL)
            child.wait()
            if (scratch := self.services[name].scratch) is not None:
                shutil.rmtree(scratch, ignore_errors=True)

    def end_all(self) -> None:
        """Ends every service, latest first; the chain and the queue end last."""
        for name, child in self.children.items():
            if child.poll() is None and not _is_foundation(self.services[name]):
                signal_group(child, signal.SIGTERM)
        for name in reversed(list(self.children)):
            self.end(name)
        self.write_state()

    def write_state(self) -> None:
        """Writes ``network.json``: the services with their URLs and process ids."""
        state = {
            "supervisor": os.getpid(),
            "services": {
                name: {"pid": child.pid if child.poll() is None else None, "url": self.services[name].url}
                for name, child in self.children.items()
            },
        }
        write_atomically(self.root / STATE, json.dumps(state, indent=1).encode())

    def log_tail(self, name: str, lines: int = 12) -> str:
        """Returns the last lines of a service's log, for an error message."""
        return "\n".join(self.output(name)[-lines:])


def _is_foundation(service: ProcessSpec) -> bool:
    """Returns whether this is the chain or the queue, which the other services need while they shut down."""
    return service.argv[0].endswith(("anvil", "redis-server"))


def _die_with_parent() -> None:
    """Asks Linux to kill this process when its supervisor dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signals a process and its children, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def free_port(asked: int | None = None) -> int:
    """Returns a free TCP port on the loopback interface, to be bound later; never the same one twice.

    Raises:
        Misconfigured: the requested port is taken.
    """
    if asked:
        if not _is_free(asked):
            raise Misconfigured(f"port {asked} is taken: end the process that listens there, or choose another port")
        return asked
    ports = (_UNASKED[attempt % len(_UNASKED)] for attempt in _ATTEMPTS)
    return next(port for port in ports if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until_listening(service: ProcessSpec, port: int, supervisor: Supervisor, seconds: float = 60.0) -> None:
    """Waits until ``port`` accepts connections; raises `Unavailable` with the end of the log if it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if supervisor.status(service) is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Unavailable(f"{service.name} did not come up:\n{supervisor.log_tail(service.name)}")


STATE = "network.json"
"""File of a running network's processes and services."""


def read_state(root: Path) -> dict[str, Any] | None:
    """Returns ``network.json``, or None if no network was started or its supervisor is gone.

    Raises:
        Misconfigured: the file cannot be read, or is no state of a network.
    """
    path = root / STATE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        return state if psutil.pid_exists(state["supervisor"]) else None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Misconfigured(
            f"cannot read the local network's state {path}: {error}; give another --root, or remove that file if it is "
            "one that a local network left"
        ) from error
