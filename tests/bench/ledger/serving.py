"""One ledger process: it reads a chain and serves what it read, and is watched meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from deploy.localnet.processes import free_port
from tests.conftest import ROOT, until

LOOK_SECONDS = 0.25
LONGEST_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class Read:
    """How a chain was read: seconds, and the most memory that the process had held up to each mark, in MiB."""

    seconds: float
    most_mib: tuple[float, ...]


@dataclass(slots=True)
class Served:
    """A running ledger and a client of its API."""

    process: subprocess.Popen[bytes]
    http: httpx.Client
    started: float

    def read_to(self, blocks: Sequence[int]) -> Read:
        """Waits for the last of ``blocks``; notes the memory as each is passed."""
        watched, most, passed = psutil.Process(self.process.pid), 0.0, []
        give_up = time.monotonic() + LONGEST_SECONDS
        while len(passed) < len(blocks):
            assert self.process.poll() is None, "the ledger has ended"
            assert time.monotonic() < give_up, "the ledger does not get on"
            most = max(most, watched.memory_info().rss / 2**20)
            here = self.http.get("/health").json()["block_number"]
            passed += [most] * sum(here >= block for block in blocks[len(passed) :])
            time.sleep(LOOK_SECONDS)
        return Read(time.monotonic() - self.started, tuple(passed))


@contextmanager
def serving(rpc: str, addresses: Path, database: str) -> Iterator[Served]:
    """``assize ledger serve`` with an empty database."""
    port = free_port()
    words = ["ledger", "serve", "--rpc", rpc, "--addresses", addresses, "--db", database, "--port", str(port)]
    process = subprocess.Popen([sys.executable, ROOT / "assize.py", *words], stdout=subprocess.DEVNULL)
    started = time.monotonic()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as http:
            until(lambda: process.poll() is not None or _answers(http), 60, "the ledger's API")
            yield Served(process, http, started)
    finally:
        process.terminate()
        process.wait(60)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/health").status_code == 200
    except httpx.TransportError:
        return False
