"""``assize health``: what a container's health check learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.node.activity import HEALTH_FILE
from protocol.node.commands.health import daemon_health, server_health
from protocol.node.daemon import Daemon
from tests.conftest import ROOT


def kept(folder: Path, **changes: object) -> Path:
    state = {"daemon": "worker", "pid": os.getpid(), "at": int(time.time()), "failures": 0, "problem": ""}
    (folder / HEALTH_FILE).write_text(json.dumps(state | changes))
    return folder


def test_a_daemon_that_ticks_is_healthy(tmp_path: Path) -> None:
    daemon = Daemon("coordinator", lambda: None, 0.01, tmp_path / HEALTH_FILE)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        while not (tmp_path / HEALTH_FILE).exists():
            time.sleep(0.01)
        assert daemon_health(tmp_path, 60, time.time()) == "coordinator: runs"
    finally:
        daemon.stop()
        thread.join()


def test_a_daemon_whose_rpc_is_down_is_healthy_and_says_so(tmp_path: Path) -> None:
    assert daemon_health(kept(tmp_path, failures=9, problem="no RPC answers"), 60, time.time()).endswith(
        "retrying: no RPC answers"
    )


def test_a_daemon_that_ended_is_not_healthy(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(Rejected, match=rf"process {ended.pid}\) ended"):
        daemon_health(kept(tmp_path, pid=ended.pid), 60, time.time())


def test_a_daemon_that_hangs_is_not_healthy(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="last sign of life is 61 s old, 60 s allowed"):
        daemon_health(kept(tmp_path, at=1_000), 60, 1_061.0)


@pytest.mark.parametrize("text", ["[]", "{}", "3"])
def test_a_file_of_something_else_is_no_health_file(tmp_path: Path, text: str) -> None:
    (tmp_path / HEALTH_FILE).write_text(text)
    with pytest.raises(Misconfigured, match="is not the state folder of a daemon"):
        daemon_health(tmp_path, 60, time.time())


@pytest.mark.parametrize(("status", "expected"), [(200, None), (503, Rejected)])
def test_a_server_is_healthy_while_it_answers(status: int, expected: type[Rejected] | None) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        if expected is None:
            assert server_health(url).endswith("/health answers")
        else:
            with pytest.raises(expected, match="answers 503"):
                server_health(url)
    with pytest.raises(Unavailable, match="does not answer"):
        server_health(url)


def test_the_command_says_in_one_sentence_what_is_missing(tmp_path: Path) -> None:
    words = (sys.executable, str(ROOT / "assize.py"), "health", str(tmp_path))
    ran = subprocess.run(words, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.count("\n"), ran.stdout) == (3, 1, "")
    assert "no daemon has run" in ran.stderr
