"""Assembly of a trainer from its settings; serves its weights and runs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing

import structlog
import torch

from protocol.broadcast.deltas.frames import available
from protocol.broadcast.server import create_app
from protocol.broadcast.version_store import VersionStore
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.chain.reading.own_standing import OwnStanding
from protocol.chain.reading.plantings import Plantings
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.environments.environment import Environment, at_version, check_machine
from protocol.environments.registry import environment
from protocol.errors import Misconfigured, Unavailable
from protocol.node import telemetry
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon
from protocol.node.trap_file import TrapFile
from protocol.tensor.model import check_model
from protocol.transport.artifacts import fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.listening import listen, run_server
from protocol.wire.pins import check_directory
from protocol.wire.receipts import ports_of
from protocol.wire.rollout import DEFAULT_LIMITS
from protocol.wire.rules import Rules
from trainer.config import check_sources
from trainer.curriculum import Curriculum
from trainer.evaluate import held_out
from trainer.evaluator import EvaluationPlan, Evaluator
from trainer.inbox import Inbox
from trainer.loop import Schedule, Trainer
from trainer.memory import check_memory
from trainer.policy import Policy
from trainer.publish import Publisher
from trainer.settings import TrainerSettings, read_recipe
from trainer.sink import Sink

INTERVAL_SECONDS = 0.05
WAITING_SECONDS = 1.0
"""Pause between questions to a coordinator that does not answer yet."""

log = structlog.get_logger()


def build(settings: TrainerSettings, publish: type[Publisher] = Publisher) -> tuple[Trainer, VersionStore]:
    """Returns the trainer and its store of weights.

    Raises:
        Misconfigured: this key is not the run's trainer, or settings are invalid.
        UnfitCheckpoint: the model is not the one that the run's rules pin.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    wallet = settings.wallet()
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    terms = chain.latest().run(settings.run).terms
    coordinator = coordinator_uri(chain, settings.run, settings.coordinator_url)
    if terms.trainer != wallet.address:
        raise Misconfigured(f"invalid trainer key {wallet.address}: run {settings.run} expects {terms.trainer}")
    rules = awaited_rules(coordinator, terms.rules_hash)
    tasks = environment(rules.environment.name, rules.environment.params)
    recipe = read_recipe(settings.run_file)
    check_directory(settings.model, rules.pins)
    check_model(settings.model)
    at_start = at_version(tasks, settings.model)
    check_machine(at_start)
    curriculum = Curriculum.of(at_start, recipe.groups_to_start)
    check_sources(recipe, [] if curriculum is None else curriculum.sources)
    check_memory(settings.model, recipe, rules, settings.device, settings.evaluation_problems > 0)
    policy = Policy(settings.model, recipe, rules, settings.device)
    store = VersionStore(settings.state_dir / "origin")
    sender = Sender(chain, wallet, settings.state_dir / "sender.db", Fees.capped(settings.fee_cap_gwei))
    folder = settings.state_dir / "versions"
    publisher = publish(chain, sender, wallet, settings.run, rules.pins, store, settings.model, folder)
    stores, ports = (
        BlobStores(trusted=lambda: [coordinator]),
        ports_of(store.place for store in rules.stores),
    )

    def fetch(holders: Sequence[str], root: bytes) -> bytes:
        return fetch_artifact(stores, holders, root, DEFAULT_LIMITS.file_bytes, ports)

    plantings = None
    if settings.traps is not None:
        traps = TrapFile.read(settings.traps)
        traps.check(settings.traps, chain.chain_id, chain.deployment.traps, settings.run)
        plantings = Plantings(chain, settings.run, traps.given())
    inbox = Inbox(chain, settings.run, rules, tasks, policy.model, fetch, plantings, publisher.stored)
    last_version = settings.last_version or recipe.steps
    schedule = Schedule(last_version, settings.evaluate_every, settings.target_accuracy)
    evaluator = _evaluator(settings, rules, at_start)
    sink = (
        Sink.open(settings.metrics_sink, f"run-{settings.run}", recipe.model_dump()) if settings.metrics_sink else None
    )
    return Trainer(policy, inbox, publisher, schedule, settings.state_dir, evaluator, sink, curriculum), store


def _evaluator(settings: TrainerSettings, rules: Rules, tasks: Environment) -> Evaluator | None:
    """Returns what evaluates versions, if anything is to; raises ``Misconfigured`` if there are too few problems."""
    problems, samples = settings.evaluation_problems, settings.evaluation_samples
    if not problems:
        return None
    held_out(tasks, settings.seed, problems)
    plan = EvaluationPlan(problems, samples, settings.seed, settings.threads, settings.device)
    return Evaluator(rules, plan, settings.state_dir / "evaluating")


def awaited_rules(coordinator: str, digest: bytes) -> Rules:
    """Returns the run's rules once its coordinator answers, and says at first that it waits for that."""
    told = False
    with closing(CoordinatorClient(coordinator)) as client:
        while True:
            try:
                return client.rules(digest)
            except Unavailable as error:
                if not told:
                    log.info("waiting", why=f"the coordinator at {coordinator} does not answer yet: {error}")
                told = True
                time.sleep(WAITING_SECONDS)


def serve(settings: TrainerSettings, publish: type[Publisher] = Publisher) -> int:
    """Trains until the schedule is complete or the process is stopped; returns the exit code."""
    telemetry.configure("trainer", settings.log_level)
    telemetry.serve_metrics(settings.metrics_port, settings.metrics_host, settings.state_dir)
    torch.set_num_threads(settings.threads)
    # The first on a machine compiles for some ten seconds, which would be missing from the first step.
    threading.Thread(target=available, name="delta-loops", daemon=True).start()
    trainer, store = build(settings, publish)
    listener = listen(settings.origin_host, settings.origin_port)
    threading.Thread(target=run_server, args=(create_app(store), listener), name="origin", daemon=True).start()
    trainer.resume()
    if settings.metrics_port:
        OwnStanding(trainer.publisher.chain, trainer.publisher.signer.address, (settings.run,)).start()
    health = settings.state_dir / HEALTH_FILE
    daemon = Daemon("trainer", trainer.tick, INTERVAL_SECONDS, health, close=trainer.close)
    return daemon.run()
