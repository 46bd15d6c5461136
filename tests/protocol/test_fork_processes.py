"""Processes behind one port: started by one that watches them, and ended with it and with one another."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.conftest import ROOT, listens, until

PATIENCE_SECONDS = 60.0
SERVER = """
import signal, socket, sys, threading
from protocol.transport.processes import fork_processes

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
number = fork_processes(2, listener)
if number == 0:
    sys.stdin.readline()
    sys.exit(3)
if "drains" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: told.set())
told = threading.Event()
while not told.wait(0.05):
    pass
listener.close()
print("draining", flush=True)
sys.stdin.readline()
"""


@contextmanager
def server(*words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process that watches two others, and their port."""
    command = [sys.executable, "-c", SERVER, *words]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        until(lambda: len(psutil.Process(process.pid).children()) == 2, PATIENCE_SECONDS, "the processes")
        try:
            yield process, port
        finally:
            process.kill()


def test_while_the_others_drain_after_the_end_of_one_nobody_takes_connections() -> None:
    with server("drains") as (process, port):
        assert process.stdin is not None
        assert process.stdout is not None
        assert listens(port)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "draining\n"
        assert not listens(port)
        assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_SECONDS) == 3


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_processes_that_are_told_to_end_end_in_order(signum: signal.Signals, status: int) -> None:
    with server() as (process, _):
        process.send_signal(signum)
        assert process.wait(PATIENCE_SECONDS) == status


def test_processes_end_with_the_one_that_watches_them() -> None:
    with server() as (process, port):
        forked = psutil.Process(process.pid).children()
        process.kill()
        assert psutil.wait_procs(forked, timeout=PATIENCE_SECONDS)[1] == []
        assert not listens(port)
