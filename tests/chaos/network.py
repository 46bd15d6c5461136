"""A local network whose processes reach one another through servers that can be told to interfere."""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from deploy.localnet.live import LiveView
from deploy.localnet.network import Localnet, NetworkOptions
from deploy.localnet.processes import ProcessSpec, Supervisor, signal_group, wait_until_listening
from protocol.chain.rpc import Rpc
from protocol.errors import Unavailable
from tests.chaos.between import Answer, Asked, Between, path_of
from tests.conftest import mining_halted

ENDPOINTS = {"coordinator": 1, "coordinator-driver": 2, "ledger": 2, "trainer": 1, "worker-1": 1, "validator-1": 1}
"""Who reaches the chain through a server of ours, as so many RPC endpoints; the others are left alone."""

RUN_FILE = Path(__file__).with_name("run.toml")
"""The built-in run without appeals: with as many validators as seats, stopping two leaves no quorum."""

LOOK_SECONDS = 0.1
GOING_ON_SECONDS = 150.0
"""How long after it healed a network may take for its next version: a round that a fault spoilt ends by its clock."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An upload that was taken: where it went, and what was sent."""

    path: str
    root: str
    digest: bytes


class Interposed(Supervisor):
    """Starts services so that what they reach is between them and it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.instead: dict[str, str] = {}
        self.chain_url = self.chain_instead = "-"
        self.more: dict[str, Mapping[str, str]] = {}

    def start(self, service: ProcessSpec) -> None:
        """Starts it with other URLs."""
        changed = replace(
            service,
            argv=tuple(self._rewritten(service.name, word) for word in service.argv),
            environment={
                **{name: self._rewritten(service.name, value) for name, value in service.environment.items()},
                **self.more.get(service.name, {}),
            },
        )
        super().start(changed)
        self.services[service.name] = service

    def _rewritten(self, name: str, value: str) -> str:
        for url, other in self.instead.items():
            value = value.replace(url, other)
        if name in ENDPOINTS:
            places = (self.chain_instead + path_of(name, endpoint + 1) for endpoint in range(ENDPOINTS[name]))
            value = value.replace(self.chain_url, ",".join(places))
        return value


class Network(Localnet):
    """The local network, its supervisor, and what stands between its processes."""

    supervisor: Interposed

    def __init__(self, root: Path, model: Path, supervisor: Interposed | None = None) -> None:
        supervisor = supervisor or Interposed(root)
        super().__init__(NetworkOptions(root=root, run_file=RUN_FILE, model=model), supervisor, _Silent(0))
        ports = self.layout.ports
        self._hearing = threading.Lock()
        self._acknowledged: list[Acknowledged] = []
        self._named: set[tuple[int, bytes]] = set()
        self.rpc_between = Between(ports["chain"])
        self.api_between = Between(ports["coordinator"], self._heard)
        self.second_between = Between(ports["coordinator"])
        self.relay_between = Between(ports["relay"])
        self.spare_between = Between(ports["relay"])
        self.origin_between = Between(ports["origin"])
        supervisor.instead = {
            self.layout.url("coordinator"): self.api_between.url,
            self.layout.url("relay"): self.relay_between.url,
            self.layout.url("origin"): self.origin_between.url,
        }
        relays = [self.relay_between.url, self.spare_between.url]
        supervisor.more["coordinator"] = {"ASSIZE_COORDINATOR_RELAYS": json.dumps(relays)}
        supervisor.chain_url, supervisor.chain_instead = self.layout.url("chain"), self.rpc_between.url

    @property
    def stores(self) -> tuple[str, ...]:
        """The coordinator through a server of ours, and through another, as a store that gives no receipts."""
        return self.api_between.url, self.second_between.url

    def start(self, endless: bool) -> None:
        """Brings everything up."""
        super().start(endless)
        self.begun_at = int(self.rpc.call("eth_blockNumber"), 16)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.supervisor.children.values():
            signal_group(child, signal.SIGCONT)
        self.supervisor.end_all()
        if hasattr(self, "chain"):
            self.chain.close()
        for between in (
            *(self.rpc_between, self.api_between, self.second_between),
            *(self.relay_between, self.spare_between, self.origin_between),
        ):
            between.close()

    def _heard(self, asked: Asked, answer: Answer) -> None:
        if asked.method == "PUT" and answer.taken and b'"root"' in answer.body:
            root = answer.body.split(b'"root":"')[1][:66].decode()
            self.acknowledge(Acknowledged(asked.path, root, hashlib.sha256(asked.body).digest()))

    def acknowledge(self, upload: Acknowledged) -> None:
        """Notes an upload that must be kept."""
        with self._hearing:
            self._acknowledged.append(upload)

    def take_acknowledged(self) -> list[Acknowledged]:
        """The uploads that were noted since this was last asked."""
        with self._hearing:
            taken, self._acknowledged = self._acknowledged, []
        return taken

    def forget_acknowledged(self, roots: set[str]) -> None:
        """Asks for no upload of these roots: their loss was the fault itself."""
        for upload in self.take_acknowledged():
            if upload.root not in roots:
                self.acknowledge(upload)

    # Its processes

    def pid(self, name: str) -> int:
        """A service's process id."""
        return self.supervisor.children[name].pid

    def kill(self, name: str) -> None:
        """Kills a process outright."""
        self.supervisor.children[name].kill()
        self.supervisor.children[name].wait(10)

    def restart(self, name: str) -> None:
        """Starts a service again, ending it first where it still runs."""
        service = self.supervisor.services[name]
        self.supervisor.end(name)
        self.supervisor.start(service)
        if service.url is not None and name != "ledger":
            wait_until_listening(service, int(service.url.rpartition(":")[2].partition("/")[0]), self.supervisor)

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Freezes processes: they hold what they hold, and answer nothing."""
        for name in names:
            signal_group(self.supervisor.children[name], signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                signal_group(self.supervisor.children[name], signal.SIGCONT)

    @contextmanager
    def without_disk(self, *names: str) -> Iterator[None]:
        """No file of these processes can grow, as on a full disk."""
        for name in names:
            process = psutil.Process(self.pid(name))
            process.rlimit(psutil.RLIMIT_FSIZE, (0, psutil.RLIM_INFINITY))
        try:
            yield
        finally:
            for name in names:
                psutil.Process(self.pid(name)).rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))

    def log(self, name: str) -> str:
        """All a service has written."""
        return "\n".join(self.supervisor.output(name))

    def fallen(self) -> list[str]:
        """Services that ended."""
        return [name for name, child in self.supervisor.children.items() if child.poll() is not None]

    # Where it stands

    @property
    def rpc(self) -> Rpc:
        """The chain itself."""
        return self.chain.rpc

    def reorganise(self, depth: int) -> None:
        """Undoes blocks, and mines as many empty ones. anvil's clock would go on from the oldest: it is set again."""
        self.named()
        with mining_halted(self.rpc):
            self.rpc.call("anvil_reorg", depth, [])
            self.rpc.call("anvil_setTime", int(time.time()))

    def named(self) -> set[tuple[int, bytes]]:
        """Every version with its manifest root that the chain names, or named before a reorganisation."""
        reader, run = self.chain.latest(), self.layout.run
        self._named |= {(version, reader.manifest_root(run, version)) for version in range(reader.run(run).version + 1)}
        return self._named

    def version(self) -> int:
        """The newest version on chain."""
        return int(self.chain.latest().run(self.layout.run).version)

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Waits until ``holds``; ``Unavailable`` where it does not."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise Unavailable(f"waited {seconds:.0f} s for {what}")
            time.sleep(LOOK_SECONDS)

    def goes_on(self, versions: int = 1) -> float:
        """Waits for so many versions more; returns the seconds that took."""
        started, wanted = time.monotonic(), self.version() + versions
        self.wait_for(f"version {wanted}", lambda: self.version() >= wanted, GOING_ON_SECONDS)
        return time.monotonic() - started


def make_small_model(directory: Path) -> None:
    """A built-in model with a short warm-up: right often enough to learn from, wrong often enough to cheat on."""
    import torch

    from trainer.builtin import Warmup, make_builtin

    torch.set_num_threads(1)
    make_builtin(directory, 3, warmup=Warmup(steps=320, slip=0.1))


class _Silent(LiveView):
    """Shows nothing: what stands on the screen is the faults."""

    def __init__(self, last_version: int) -> None:
        super().__init__(last_version, interactive=False)

    def say(self, sentence: str) -> None:
        """Keeps it to itself."""
        self.doing = sentence


def stored(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a database holds that a process is writing to."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        return database.execute(query).fetchall()
