"""Several processes behind one port: forked once it is open, and ended together."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from contextlib import suppress

INTERRUPTED = 128 + signal.SIGINT
_ENDING = (signal.SIGTERM, signal.SIGINT)


def fork_processes(count: int, listener: socket.socket) -> int:
    """Forks ``count`` processes that share ``listener``; returns in each of them, with its number from 0.

    Call it before threads are started and databases opened. With 1 nothing is forked. Otherwise this process stays
    behind and does not return: it passes SIGTERM and SIGINT on, ends the others once one of them has ended, and then
    exits. Should it be killed, the others end, too.
    """
    if count == 1:
        return 0
    reads, writes = os.pipe()
    pids = set[int]()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until there is who passes them on
    for number in range(count):
        pid = os.fork()
        if not pid:
            os.close(writes)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            threading.Thread(target=_end_with_parent, args=(reads,), daemon=True).start()
            return number
        pids.add(pid)
    os.close(reads)
    listener.close()  # else it would take connections that nobody answers while the others end
    sys.exit(_attend(pids))


def _attend(pids: set[int]) -> int:
    """Waits for all of the processes to end; returns the exit status.

    It is 0 if they were told to end and did so in order, 130 after SIGINT, and otherwise that of the first that ended
    by itself, or 1 if it has none.
    """
    told = 0

    def tell(signum: int, _: object) -> None:
        nonlocal told
        told = told or signum
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # a second SIGINT, besides a terminal's, would cut requests off

    for each in _ENDING:
        signal.signal(each, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    status = 0
    while pids:
        pid, ended = os.wait()
        if pid not in pids:  # an orphan that fell to this process as the first of a container
            continue
        pids.discard(pid)
        code = os.waitstatus_to_exitcode(ended)
        if not told:
            status = code if code > 0 else 1
            tell(signal.SIGTERM, None)
        elif code not in (0, -signal.SIGTERM, INTERRUPTED):
            status = status or (code if code > 0 else 1)
    return status or (INTERRUPTED if told == signal.SIGINT else 0)


def _end_with_parent(pipe: int) -> None:
    """Waits until the parent is gone, as its end of the pipe then closes, and ends this process."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
