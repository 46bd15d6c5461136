"""A run with real weights and its coordinator, and workers when asked for. The test lets the coordinator advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.driver.wiring import DriverProcess, keep_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from protocol.broadcast import publishing
from protocol.broadcast.server import create_app as create_origin
from protocol.broadcast.version_store import VersionStore
from protocol.chain.events import RunOpened
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.listening import listen
from protocol.wire import manifest
from protocol.wire.api import Assignment
from protocol.wire.rules import ArtifactStore, encode_rules, rules_hash, with_checkpoint, with_stores
from tests.conftest import TOKEN, serving
from tests.coordinator.swarm import Party, Swarm
from worker.daemon import Worker
from worker.engines.transformers_engine import TransformersEngine
from worker.settings import WorkerSettings


@dataclass
class Farm:
    """Everything around a worker. ``close`` it."""

    swarm: Swarm
    model: Path
    directory: Path
    escrow: int = 400 * TOKEN
    closing: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        listener = listen("127.0.0.1", 0)
        store = ArtifactStore(key=self.swarm.coordinator.address, url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        self.swarm.rules = with_stores(self.swarm.rules, [store], 1)
        self.root = open_run_with(self.swarm, self.model, self.escrow, store.url)
        chunks, deployment = VersionStore(self.directory / "origin"), self.swarm.chain.deployment
        publishing.publish(
            self.model, self.swarm.run, 0, deployment.chain_id, deployment.market, self.swarm.trainer, chunks
        )
        self.origin_url = self.closing.enter_context(serving(create_origin(chunks)))
        self.settings: CoordinatorSettings = self.swarm.settings(
            relays=[self.origin_url], first_round_nodes=1, max_rounds=1
        )
        database = Store(self.settings.database)
        keep_rules(database, self.swarm.rules)
        self.app = create_app(CoordinatorService(self.settings, database, deployment, self.swarm.coordinator))
        self.url = self.swarm.url = self.closing.enter_context(serving(self.app, listener))
        self.driver = DriverProcess(self.settings, self.swarm.coordinator)
        self.closing.callback(self.driver.close)
        self.driver.tick()

    @property
    def party(self) -> Party:
        """The node that the workers here are."""
        return self.swarm.workers[0]

    def close(self) -> None:
        self.closing.close()

    def worker_settings(self, name: str = "worker", **changes: Any) -> WorkerSettings:
        """Settings of a worker whose state lies under ``name``."""
        values: dict[str, Any] = {
            "rpc_url": self.swarm.anvil.url,
            "addresses": self.directory / "addresses.json",
            "keystore": "worker",
            "state_dir": self.directory / name,
            "coordinator_url": self.url,
            "run": self.swarm.run,
            "wait_seconds": 0.0,
        }
        return WorkerSettings(**(values | changes))

    def worker(
        self, name: str = "worker", kind: type[Worker] = Worker, party: Party | None = None, **changes: Any
    ) -> Worker:
        """A worker over the state ``name``: asking twice is starting it again."""
        settings, deployment = self.worker_settings(name, **changes), self.swarm.chain.deployment
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        key = (party or self.party).key
        chain = Chain(settings.rpc_url, deployment)
        client = CoordinatorClient(settings.coordinator_url, key, chain.chain_id, deployment.rounds, settings.run)
        sender = Sender(chain, key, settings.state_dir / "sender.db")
        with ExitStack() as unless_made:
            for held in (chain, client, sender):
                unless_made.callback(held.close)
            made = kind(settings, key, chain, client, sender, TransformersEngine())
            unless_made.pop_all()
        self.closing.callback(made.close)
        return made

    def open_round(self, worker: Worker) -> Assignment:
        """Says that the worker is up and holds the weights, and has a round opened for it."""
        worker.checkpoints.directory(0, self.root)
        self.swarm.beat()
        client, found = self.swarm.client(self.party), list[Assignment]()

        def opened() -> bool:
            self.driver.tick()
            found[:] = client.assignments(self.party.node)
            return bool(found)

        wait_for(opened)
        (assignment,) = found
        return assignment


def open_run_with(swarm: Swarm, model: Path, escrow: int = 400 * TOKEN, uri: str = "rules") -> bytes:
    """Opens another run in place of the swarm's, with ``model`` as version 0 and in its rules; everybody joins it.

    ``uri`` is where it says on chain that its coordinator is.

    Returns the manifest root.
    """
    reader, deployment, root = swarm.chain.latest(), swarm.chain.deployment, manifest.from_directory(model, 0).root
    swarm.rules = with_checkpoint(swarm.rules, model)
    terms = replace(reader.run(swarm.run).terms, rules_hash=rules_hash(encode_rules(swarm.rules)))
    receipt = swarm.send(swarm.requester, calls.open_run(deployment, terms, root, uri))
    (opened,) = [log.event for log in receipt.logs if isinstance(log.event, RunOpened)]
    if escrow:
        swarm.send(swarm.requester, calls.fund_run(deployment, opened.run, escrow))
    swarm.run = opened.run
    for party in (*swarm.workers, *swarm.validators):
        swarm.join(party)
    return root


def wait_for(holds: Callable[[], object], seconds: float = 15.0) -> None:
    """Waits until ``holds``."""
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.02)
