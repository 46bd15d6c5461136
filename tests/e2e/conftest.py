"""The whole local network, as a person starts it: real processes, a real chain, a small model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from deploy.localnet.outcome import Metrics
from tests.chaos.network import RUN_FILE as RUN_WITHOUT_APPEALS
from tests.chaos.network import make_small_model
from tests.e2e.walks import blocks, checkout, commands, newcomer

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 180
STEP_SECONDS = 600


def assize(*words: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Runs one of our commands to its end."""
    command = [sys.executable, str(ROOT / "assize.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT)


@dataclass(frozen=True)
class Network:
    """A network that is up: its supervisor and its state folder."""

    supervisor: subprocess.Popen[str]
    root: Path

    def state(self) -> dict[str, Any]:
        """What ``network.json`` says."""
        return dict(json.loads((self.root / "network.json").read_text()))

    def url(self, service: str) -> str:
        """Where a service listens."""
        return str(self.state()["services"][service]["url"])

    def pid(self, service: str) -> int:
        """A service's process id."""
        return int(self.state()["services"][service]["pid"])

    def version(self) -> int:
        """The newest version the trainer recorded."""
        metrics = Metrics.read(self.root / "state" / "trainer" / "metrics.jsonl")
        return max((step["version"] for step in metrics.steps), default=0)

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = STEP_SECONDS) -> None:
        """Waits until ``holds``; fails with the logs' ends where it does not."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert self.supervisor.poll() is None, f"the network ended while waiting for {what}"
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}\n{self.logs()}"
            time.sleep(0.25)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Freezes all who compute: what is asked of chain and ledger meanwhile has the machine to itself."""
        resting = [name for name in self.state()["services"] if name.startswith(("worker", "validator", "trainer"))]
        for name in resting:
            os.killpg(self.pid(name), signal.SIGSTOP)
        try:
            yield
        finally:
            for name in resting:
                os.killpg(self.pid(name), signal.SIGCONT)

    def logs(self) -> str:
        """The end of every service's log."""
        files = sorted((self.root / "logs").glob("*.log"))
        return "\n".join(f"== {file.stem}\n" + "\n".join(file.read_text().splitlines()[-8:]) for file in files)


def children_of(pid: int) -> Sequence[psutil.Process]:
    """Every process that descends from ``pid``."""
    return psutil.Process(pid).children(recursive=True)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A built-in model with a short warm-up, made once for all workers of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    directory = (own if worker_id == "master" else own.parent) / "small-model"
    with FileLock(directory.with_suffix(".lock")):
        if not directory.exists():
            make_small_model(directory)
    return directory


@pytest.fixture(scope="session")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``assize`` in an environment with nothing but the ledger's extra, made as ledger/README.md says."""
    folder = checkout(tmp_path_factory.mktemp("auditing") / "checkout")
    make, install, _ = commands(blocks("ledger/README.md")[1])
    for command in (make, install):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(["bash", "-c", command], check=True, cwd=folder, env=os.environ | {"PATH": path})
    without = subprocess.run([folder / "auditor/bin/python", "-c", "import torch"], capture_output=True, check=False)
    assert without.returncode != 0
    return folder / "auditor" / "bin" / "assize"


@pytest.fixture
def network(small_model: Path, tmp_path: Path) -> Iterator[Network]:
    """A network that stays up for one test, started as the READMEs say, and leaves nothing behind."""
    folder = checkout(tmp_path / "checkout")
    *before, up = commands(blocks("worker/README.md")[0])
    with (tmp_path / "up.log").open("w") as log:
        supervisor = subprocess.Popen(
            ["bash", "-c", "\n".join((*before, f"exec {up}"))],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=newcomer(
                folder, ASSIZE_LOCALNET_MODEL=str(small_model), ASSIZE_LOCALNET_RUN_FILE=str(RUN_WITHOUT_APPEALS)
            ),
        )
    network = Network(supervisor, folder / ".localnet")
    try:
        deadline = time.monotonic() + UP_SECONDS
        while "up: " not in (tmp_path / "up.log").read_text():
            assert supervisor.poll() is None, (tmp_path / "up.log").read_text()
            assert time.monotonic() < deadline, network.logs()
            time.sleep(0.25)
        yield network
    finally:
        supervisor.terminate()
        supervisor.wait(60)
