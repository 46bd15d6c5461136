"""The ground that hosts stand on leaves nothing behind, however it is left."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, until
from tests.network.ground import forbidden, missing_programs

LAY = """
import signal, sys, time
from tests.network.ground import ground
from tests.network.plan import Host, Plan

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
with ground(lambda prefix: Plan((Host("a", (8000,)), Host("b")), prefix), separate=sys.argv[1] == "1") as laid:
    laid.start("a", "server", (sys.executable, "-m", "http.server", "8000", "--bind", laid.plan.own("a")))
    laid.start("b", "orphan", ("bash", "-c", "setsid sleep 1000 & sleep 1000"))
    asking = f"until exec 3<>/dev/tcp/{laid.plan.public('a')}/8000; do sleep 0.1; done"
    assert not laid.start("b", "asking", ("timeout", "60", "bash", "-c", asking)).wait(), "a host that answers"
    print(laid.root, *(pid for site in laid.sites.values() for pid in site.pids()), flush=True)
    if sys.argv[2] == "fails":
        raise ValueError("on purpose")
    if sys.argv[2] == "waits":
        time.sleep(1000)
"""
SEPARATE = "0" if missing_programs() or forbidden() else "1"


@pytest.mark.long
@pytest.mark.parametrize("end", ["fails", "SIGINT", "SIGKILL"])
def test_the_hosts_their_processes_and_files_are_gone_at_the_end(end: str) -> None:
    stops = end.startswith("SIG")
    words = [sys.executable, "-c", LAY, SEPARATE, "waits" if stops else end]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        folder, *pids = process.stdout.readline().split()
        assert len(pids) >= 4, "a server, two that sleep, and their shell"
        if stops:
            process.send_signal(signal.Signals[end])
        process.wait(60)
    if end == "SIGKILL" and SEPARATE == "0":  # nothing is left that could end them
        return
    until(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), 10, "all processes to end")
    assert Path(folder).exists() == (end == "SIGKILL")
    shutil.rmtree(folder, ignore_errors=True)
