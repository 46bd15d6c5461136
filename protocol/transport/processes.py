"""Several processes behind one port: forked once it is open, and ended together."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress


def fork_processes(count: int) -> int:
    """Goes on in ``count`` processes, which share what is open; returns the number of each, from 0.

    Call it before threads are started and databases opened. With 1 nothing is forked. Else this process stays behind
    and does not return: it hands SIGTERM and SIGINT on, ends the others once one has ended by itself, and then exits.
    Should it be killed, the others end, too.
    """
    if count == 1:
        return 0
    alive, held = os.pipe()
    pids = set[int]()
    for number in range(count):
        pid = os.fork()
        if not pid:
            os.close(held)
            threading.Thread(target=_end_at_close_of, args=(alive,), daemon=True).start()
            return number
        pids.add(pid)
    os.close(alive)
    sys.exit(_attend(pids))


def _attend(pids: set[int]) -> int:
    """Waits for processes to end; returns the exit status: 0 if they were told to and did so."""
    told, status = False, 0

    def tell(*_: object) -> None:
        nonlocal told
        told = True
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # a second SIGINT, besides a terminal's, would cut requests off

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, tell)
    while pids:
        pid, ended = os.wait()
        pids.discard(pid)
        code = os.waitstatus_to_exitcode(ended)
        if not told:
            code = code if code > 0 else 1
            tell()
        status = status or max(code, 0)
    return status


def _end_at_close_of(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
