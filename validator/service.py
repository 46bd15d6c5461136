"""Putting a validator together from its settings."""

from __future__ import annotations

from pathlib import Path

import torch

from protocol.chain.client import Chain
from protocol.chain.deployment import Deployment
from protocol.chain.sender import Sender
from protocol.chain.structs import Role
from protocol.errors import Misconfigured
from protocol.node.daemon import Daemon
from protocol.node.telemetry import configure, serve_metrics
from protocol.node.wallet import Wallet
from protocol.transport.coordinator import CoordinatorClient
from validator.bundles import Bundles
from validator.daemon import Validator
from validator.desk import Desk
from validator.errands import Errands
from validator.fetching import Fetching
from validator.history import History
from validator.journal import Journal
from validator.runs import Runs
from validator.settings import ValidatorSettings


def node_of(chain: Chain, wallet: Wallet) -> int:
    """Returns the validator whose node key this is; raises ``Misconfigured`` where it is none."""
    reader = chain.latest()
    node = reader.node_by_key(wallet.address)
    if node == 0:
        raise Misconfigured(
            f"key {wallet.address} belongs to no node: `assize node register --role validator` binds it"
        )
    if reader.node(node).role is not Role.VALIDATOR:
        raise Misconfigured(f"node {node} of key {wallet.address} is a worker, not a validator: use another key")
    return node


def history_of(client: CoordinatorClient, journal: Journal, deployment: Deployment, directory: Path) -> History:
    """Returns the record of all nodes; its own bundles a juror has in its journal, the others' lie with the run."""

    def bundle(root: bytes) -> bytes:
        return journal.evidence(root) or client.evidence(root)

    return History(Bundles(bundle, deployment.chain_id, deployment.rounds, directory))


def serve(settings: ValidatorSettings, kind: type[Validator] = Validator) -> int:
    """Runs until stopped; returns the exit code."""
    configure("validator", settings.log_level)
    serve_metrics(settings.metrics_port)
    return build(settings, kind).run()


def build(settings: ValidatorSettings, kind: type[Validator] = Validator) -> Daemon:
    """Returns the daemon, ready to run. Raises ``Misconfigured`` or ``Unavailable`` with what is missing."""
    torch.set_num_threads(1)
    wallet = settings.wallet()
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    node = node_of(chain, wallet)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    deployment = chain.deployment
    client = CoordinatorClient(settings.coordinator_url, wallet, deployment.chain_id, deployment.rounds)
    journal = Journal(settings.state_dir)
    fetching, errands = Fetching(), Errands(client, journal, node, settings.heartbeat_seconds)
    runs = Runs(client, deployment, settings.state_dir / "weights", settings.sources, settings.device)
    history = history_of(client, journal, deployment, settings.state_dir)
    validator = kind(
        chain=chain,
        node=node,
        signer=wallet,
        sender=Sender(chain, wallet, settings.state_dir / "sender.sqlite"),
        journal=journal,
        runs=runs,
        desk=Desk(fetching),
        errands=errands,
        history=history,
        reserve_seconds=settings.reserve_seconds,
        patience_seconds=settings.patience_seconds,
        nudge_seconds=settings.nudge_seconds,
    )

    def close() -> None:
        for part in (fetching, errands, history, runs, journal, client, chain):
            part.close()

    health_file = settings.state_dir / "health.json"
    return Daemon("validator", validator.tick, settings.interval_seconds, health_file, close=close)
