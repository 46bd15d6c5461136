"""The loop outlives what fails, ends when told to, and says why."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.garbage import LOADING, USUAL
from protocol.node import telemetry
from protocol.node.daemon import Daemon, backoff_seconds
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def logging_left_as_found() -> Iterator[None]:
    """Logging set up in a test would go on writing to that test's stderr."""
    yield
    structlog.reset_defaults()


def run_ticks(*steps: Exception | bool | None, interval: float = 0.02, **options: object) -> tuple[int, list[float]]:
    """Runs a daemon through these steps, then stops it; its exit code and when each tick began."""
    started: list[float] = []
    remaining = list(steps)

    def tick() -> bool | None:
        started.append(time.monotonic())
        if not remaining:
            daemon.stop()
            return None
        step = remaining.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    daemon = Daemon("test", tick, interval, longest_backoff_seconds=0.05, **options)  # type: ignore[arg-type]
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(daemon.run()), daemon=True)
    thread.start()
    thread.join(10)
    return codes[0], started


@pytest.mark.parametrize("error", [Unavailable("gone"), Rejected("bad"), ValueError("a bug")])
def test_a_failed_tick_is_followed_by_another(error: Exception) -> None:
    code, started = run_ticks(error, error, None)
    assert code == 0
    assert len(started) == 4


def test_a_loop_that_never_ends_a_tick_shows_when_it_started() -> None:
    before, running, ends = time.time(), threading.Event(), threading.Event()

    def tick() -> None:
        running.set()
        ends.wait(10)

    daemon = Daemon("stuck-at-once", tick, 1)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    running.wait(10)
    shown = REGISTRY.get_sample_value("assize_last_tick_timestamp_seconds", {"daemon": "stuck-at-once"})
    daemon.stop()
    ends.set()
    thread.join()
    assert shown is not None
    assert shown >= before


def test_garbage_is_collected_as_usual_once_the_loop_runs() -> None:
    found, before = list[tuple[int, int, int]](), gc.get_threshold()

    def tick() -> None:
        found.append(gc.get_threshold())
        daemon.stop()

    daemon = Daemon("collecting", tick, 1)
    gc.set_threshold(*LOADING)
    try:
        daemon.run()
    finally:
        gc.set_threshold(*before)
    assert found == [USUAL]


def test_misconfiguration_ends_the_loop_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure("test", as_json=True)
    code, started = run_ticks(None, Misconfigured("set the thing"), None, health_file=tmp_path / "health.json")
    assert (code, len(started)) == (2, 2)
    assert json.loads((tmp_path / "health.json").read_text())["problem"] == "set the thing"


def test_more_work_is_taken_at_once_and_idle_ticks_wait() -> None:
    _, started = run_ticks(True, None, None, interval=1.0)
    assert started[1] - started[0] < 0.9 <= started[2] - started[1]


def test_waking_cuts_the_pause_short() -> None:
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 2:
            daemon.stop()

    daemon = Daemon("test", tick, 30)
    thread = threading.Thread(target=daemon.run, daemon=True)
    thread.start()
    while not ticks and thread.is_alive():
        time.sleep(0.01)
    daemon.wake.set()
    thread.join(5)
    assert len(ticks) == 2


def test_what_was_opened_is_closed_however_it_ends() -> None:
    closed: list[bool] = []
    run_ticks(Misconfigured("no"), close=lambda: closed.append(True))
    assert closed == [True]


CHILD = """
from pathlib import Path
from protocol.node.daemon import Daemon
daemon = Daemon("child", lambda: print("tick", flush=True), 0.05, close=lambda: print("closed", flush=True))
raise SystemExit(daemon.run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_order(number: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    while b"tick" not in child.stdout.readline():
        pass
    child.send_signal(number)
    rest = child.communicate(timeout=10)[0]
    assert child.returncode == 0
    assert rest.endswith(b"closed\n") or b"closed" in rest


DRAINING = """
import sys
from protocol.node import telemetry
from protocol.node.daemon import Daemon, DrainPlan
telemetry.configure("child", as_json=True)
left = int(sys.argv[1])
asked = False

def begin():
    global asked
    asked = True
    print("begins", flush=True)

def tick():
    global left
    left -= asked
    print("tick", flush=True)

drain = DrainPlan(begin, lambda: asked and left < 0, float(sys.argv[2]))
raise SystemExit(Daemon("child", tick, 0.05, drain=drain).run())
"""


@pytest.mark.parametrize(
    ("left", "most", "signals", "begins", "drained"),
    [
        (5, "30", [signal.SIGTERM], True, True),
        (10**6, "0.4", [signal.SIGTERM], True, False),
        (10**6, "30", [signal.SIGTERM, signal.SIGTERM], True, False),
        (10**6, "30", [signal.SIGTERM, signal.SIGINT], True, False),
        (10**6, "30", [signal.SIGINT], False, False),
        (10**6, "0", [signal.SIGTERM], False, False),
    ],
    ids=["done", "too late", "told twice", "told and interrupted", "interrupted", "not allowed"],
)
def test_a_daemon_that_is_told_to_end_drains_in_the_time_it_has_or_until_it_is_told_again(
    left: int, most: str, signals: list[signal.Signals], begins: bool, drained: bool
) -> None:
    words = [sys.executable, "-c", DRAINING, str(left), most]
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    while "tick" not in child.stdout.readline():
        pass
    for number in signals:
        child.send_signal(number)
        time.sleep(0.2)
    out, log = child.communicate(timeout=10)
    assert child.returncode == 0
    assert ("begins" in out, '"event": "drained"' in log) == (begins, drained), log


WOKEN = """
import itertools, signal
from protocol.node.daemon import Wake
wake = Wake()
signal.signal(signal.SIGALRM, lambda *_: wake.set())
for microseconds in itertools.islice(itertools.cycle(range(1, 60)), 20_000):
    signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
    wake.clear()
    wake.wait(0.00002)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_may_come_while_the_loop_begins_or_ends_its_wait() -> None:
    assert subprocess.run([sys.executable, "-c", WOKEN], cwd=ROOT, timeout=60, check=False).returncode == 0


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_grows_to_its_limit_and_never_past_it(failures: int, draw: float) -> None:
    pause = backoff_seconds(failures, 0.1, 15.0, draw)
    assert 0.05 <= pause <= 15.0
    assert backoff_seconds(failures + 1, 0.1, 15.0, draw) >= pause


def test_a_crash_is_logged_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure("test", as_json=True)
    run_ticks(ValueError("a bug"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (crash,) = [line for line in lines if line["event"] == "tick_crashed"]
    assert "ValueError: a bug" in crash["exception"]
    assert crash["daemon"] == "test"


def test_a_log_on_a_full_disk_stops_nobody(tmp_path: Path) -> None:
    script = (
        "import resource, structlog; from protocol.node import telemetry; telemetry.configure('daemon'); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)); "
        "structlog.get_logger().warning('lost'); print('went on')"
    )
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=log, text=True, check=True)
    assert done.stdout == "went on\n"
    assert (tmp_path / "log").read_text() == ""


def test_a_health_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    health = tmp_path / "no folder" / "health.json"
    daemon = Daemon("daemon", lambda: daemon.stop(), 0.0, health)
    assert daemon.run() == 0
    assert not health.exists()
