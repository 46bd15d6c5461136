"""Ponder, installed from npm for one bench, as one more reader of the chain.

It is a process that follows by itself. So that it disturbs nobody and nobody it, it is stopped between its turns.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from deploy.localnet.processes import free_port
from protocol.chain.deployment import Deployment
from protocol.chain.rpc import Rpc
from tests.bench.mirror.readers import Place

PROJECT = Path(__file__).parent / "ponder"
INSTALL = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
INSTALL_SECONDS = 300
LONGEST_WAIT_SECONDS = 600
BEGUN = "Started backfill indexing"
"""What its log says once it is set up and begins to read."""

REQUESTS = "ponder_rpc_request_duration_count"
"""Its own count of requests to the RPC, one for each method."""


class PonderFailed(Exception):
    """It ended, does not answer, or takes too long; the others are measured without it."""


def install(folder: Path) -> str:
    """Puts our Ponder project with its packages into ``folder``; returns why that failed, or nothing."""
    shutil.copytree(PROJECT, folder)
    if (npm := shutil.which("npm")) is None:
        return "there is no npm"
    try:
        done = subprocess.run([npm, *INSTALL], cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"npm took more than {INSTALL_SECONDS} seconds"
    lines = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else next((line for line in lines if "error" in line), "npm failed")


class Ponder:
    """Ponder over PGlite, in its own process; the time it takes to start is not counted."""

    def __init__(self, url: str, deployment: Deployment, project: Path, folder: Path) -> None:
        port, self._rpc, self.calls = free_port(), Rpc(url), 0
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self._log = folder / "ponder.log"
        command = ["node_modules/.bin/ponder", "start", "--schema", "bench", "--log-format", "json"]
        environment = os.environ | {
            "PONDER_TELEMETRY_DISABLED": "1",
            "BENCH_RPC": url,
            "BENCH_TOKEN": deployment.token,
            "BENCH_START": str(deployment.start_block + 1),
            "BENCH_DATABASE": str(folder / "pglite"),
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(port), "--hostname", "127.0.0.1"],
                cwd=project,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(lambda: BEGUN in self._log.read_text())
        except PonderFailed:
            self.close()
            raise

    def catch_up(self) -> None:
        """Reads up to the head."""
        head = self._rpc.call("eth_getBlockByNumber", "latest", False)
        wanted = [[int(head["number"], 16), head["hash"]]]
        self._send(signal.SIGCONT)
        self._wait(lambda: self._get("/newest").json() == wanted)
        self._send(signal.SIGSTOP)

    def places(self) -> set[Place]:
        """Every transfer it holds."""
        self._send(signal.SIGCONT)
        lines = self._get("/metrics").text.splitlines()
        self.calls = sum(
            int(line.split()[-1]) for line in lines if line.startswith("ponder_rpc_request_duration_count")
        )
        return {(number, index, tx_hash) for number, index, tx_hash in self._get("/places").json()}

    def close(self) -> None:
        """Ends it."""
        if self._process.poll() is None:
            self._send(signal.SIGKILL)
            self._process.wait(10)
        self._http.close()
        self._rpc.close()

    def _get(self, path: str) -> httpx.Response:
        try:
            return self._http.get(path).raise_for_status()
        except httpx.HTTPError as error:
            raise PonderFailed(f"{error}; its log ends: {self._log.read_text()[-500:]}") from error

    def _send(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def _wait(self, is_there: Any) -> None:
        give_up = time.monotonic() + LONGEST_WAIT_SECONDS
        while not is_there():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise PonderFailed(f"it did not get there; its log ends: {self._log.read_text()[-500:]}")
            time.sleep(0.05)  # its own process answers: asking more often would slow it down
