"""Children are started, found dead, started again, and all of them ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.localnet.processes import ProcessSpec, Supervisor, free_port, read_state, wait_until_listening
from protocol.errors import Misconfigured, Unavailable
from tests.conftest import ROOT

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = (
    "import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid,"
    " flush=True); time.sleep(60)"
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path) as made:
        yield made


def python(name: str, script: str, **environment: str) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", script), environment)


def sleeper(name: str) -> ProcessSpec:
    return ProcessSpec(name, ("sleep", "60"))


def wait_for(holds: Callable[[], object], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.02)


def log(supervisor: Supervisor, name: str) -> str:
    return (supervisor.root / "logs" / f"{name}.log").read_text()


def running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_child_gets_its_environment_and_its_output_is_kept(supervisor: Supervisor) -> None:
    supervisor.start(
        python("teller", "import os; print(os.environ['TOLD'], os.environ['OMP_NUM_THREADS'])", TOLD="yes")
    )
    wait_for(lambda: supervisor.children["teller"].poll() is not None)
    assert log(supervisor, "teller") == "yes 1\n"


def test_every_child_is_ended_with_the_supervisor_whatever_the_reason(tmp_path: Path) -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with Supervisor(tmp_path) as supervisor:
            for name in ("one", "two"):
                supervisor.start(sleeper(name))
            pids.extend(child.pid for child in supervisor.children.values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    assert not any(running(pid) for pid in pids)
    assert json.loads((tmp_path / "network.json").read_text())["services"] == {}


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(supervisor: Supervisor) -> None:
    supervisor.start(python("stubborn", STUBBORN))
    wait_for(lambda: "up" in log(supervisor, "stubborn"))
    pid = supervisor.children["stubborn"].pid
    started = time.monotonic()
    supervisor.end("stubborn", grace_seconds=0.3)
    assert 0.3 <= time.monotonic() - started < 3
    assert not running(pid)


def test_what_is_of_no_use_without_the_child_is_removed_once_it_has_ended(supervisor: Supervisor) -> None:
    scratch = supervisor.root / "state" / "writer"
    script = f"import pathlib, time; pathlib.Path({str(scratch)!r}).mkdir(parents=True); time.sleep(60)"
    supervisor.start(replace(python("writer", script), scratch=scratch))
    wait_for(scratch.exists)
    supervisor.end("writer")
    assert not scratch.exists()
    assert scratch.parent.exists()


def test_what_a_child_started_ends_with_it(supervisor: Supervisor) -> None:
    supervisor.start(python("parent", PARENT))
    wait_for(lambda: log(supervisor, "parent").strip())
    grandchild = int(log(supervisor, "parent"))
    assert running(grandchild)
    supervisor.end("parent")
    wait_for(lambda: not running(grandchild))


def test_children_die_with_a_supervisor_that_was_killed_outright(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from deploy.localnet.processes import ProcessSpec, Supervisor;"
        "s = Supervisor(Path(sys.argv[1])); s.start(ProcessSpec('sleeper', ('sleep', '60')));"
        "print(s.children['sleeper'].pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    wait_for(lambda: not running(child))


def test_a_child_that_fell_is_told_once_with_its_status(supervisor: Supervisor) -> None:
    supervisor.start(python("brief", "import sys; print('why'); sys.exit(3)"))
    supervisor.start(sleeper("steady"))
    supervisor.children["brief"].wait(10)
    assert supervisor.fallen() == [("brief", 3)]
    assert supervisor.fallen() == []
    assert "why" in supervisor.log_tail("brief")


def test_another_terminal_may_ask_for_a_service_to_be_started_again(supervisor: Supervisor) -> None:
    supervisor.start(sleeper("steady"))
    before = supervisor.children["steady"].pid
    os.kill(before, signal.SIGKILL)
    supervisor.children["steady"].wait(10)
    (supervisor.root / "requests" / "start-steady").touch()
    (supervisor.root / "requests" / "start-nobody").touch()
    assert supervisor.serve_requests() == ["steady"]
    assert supervisor.serve_requests() == []
    assert supervisor.children["steady"].pid != before
    assert supervisor.fallen() == []
    assert list((supervisor.root / "requests").iterdir()) == []


def test_the_state_file_says_what_runs_and_is_void_once_its_supervisor_is_gone(supervisor: Supervisor) -> None:
    assert read_state(supervisor.root) is None
    supervisor.start(ProcessSpec("web", ("sleep", "60"), url="http://127.0.0.1:1"))
    state = read_state(supervisor.root)
    assert state is not None
    assert state["services"] == {"web": {"pid": supervisor.children["web"].pid, "url": "http://127.0.0.1:1"}}
    with subprocess.Popen(["true"]) as gone:
        gone.wait(10)
    path = supervisor.root / "network.json"
    path.write_text(json.dumps(state | {"supervisor": gone.pid}))
    assert read_state(supervisor.root) is None
    path.write_text('{"networks": {}}')  # of another program
    with pytest.raises(Misconfigured, match="give another --root, or remove that file if it is one that a local"):
        read_state(supervisor.root)


def test_processor_time_is_booked_by_service(supervisor: Supervisor) -> None:
    supervisor.start(
        python("busy", "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ntime.sleep(60)")
    )
    supervisor.start(sleeper("idle"))
    wait_for(lambda: "done" in log(supervisor, "busy"))
    used = supervisor.cpu_seconds()
    assert used["busy"] >= 0.2 > used["idle"]


def test_a_port_that_is_taken_is_refused_and_a_free_one_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"port {port} is taken"):
            free_port(port)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))


def test_a_service_that_never_listens_is_named_with_the_end_of_its_log(supervisor: Supervisor) -> None:
    service = python("mute", "print('no such database')")
    supervisor.start(service)
    with pytest.raises(Unavailable, match=r"mute did not come up:\nno such database"):
        wait_until_listening(service, free_port(), supervisor, seconds=10)


def test_waiting_ends_as_soon_as_the_service_listens(supervisor: Supervisor) -> None:
    port = free_port()
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    service = python("server", script)
    supervisor.start(service)
    wait_until_listening(service, port, supervisor, seconds=10)
