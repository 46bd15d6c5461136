"""Builds and runs a validator, or a background worker, from its settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch

from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import RunRules, rules_in_view
from protocol.chain.structs import Role
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, accessing
from protocol.files import lock
from protocol.node.activity import HEALTH_FILE
from protocol.node.commands.doctor import node_of
from protocol.node.daemon import Daemon, DrainPlan
from protocol.node.release import ReleaseWatch
from protocol.node.telemetry import configure, serve_metrics
from protocol.tensor.kernels import load_kernels
from protocol.transport.blobs import BlobStores
from protocol.transport.run_coordinators import RunCoordinators
from validator.daemon import Validator
from validator.deliveries import Deliveries
from validator.journal import VoteJournal
from validator.judging.fetching import Fetching
from validator.judging.runs import RunContext, Runs
from validator.queue.background import sender, work
from validator.queue.checker import Checker
from validator.queue.exchange import Exchange
from validator.queue.judged_round import Judge
from validator.queue.local_judge import LocalJudge
from validator.queue.queued_judge import JOBS_PER_ORDER, QueuedJudge
from validator.records.bundles import Bundles
from validator.records.history import History
from validator.records.reward_store import RewardStore
from validator.records.steering import Steering
from validator.restoring import Restoring
from validator.sampling import Sampling
from validator.settings import BackgroundSettings, ValidatorSettings

Announce = Callable[[RunContext, int, bytes], None]


def history_of(
    coordinators: RunCoordinators, journal: VoteJournal, deployment: Deployment, directory: Path, juror: int
) -> History:
    """Returns all nodes' records before ``juror``; bundles come from the journal, or else from a run's coordinator."""

    def bundle(run: int, root: bytes) -> bytes:
        return journal.evidence(root) or coordinators.of(run).evidence(root)

    bundles = Bundles(bundle, deployment.chain_id, deployment.rounds, directory)
    return History(bundles, juror, Steering(RewardStore(directory)))


def judge_of(
    queue_url: str,
    juror: int,
    coordinators: RunCoordinators,
    restoring: Restoring,
    jobs_per_order: int = JOBS_PER_ORDER,
) -> tuple[Judge, Announce | None]:
    """Returns the judge of ``juror``, and the callback for new weights if background workers judge.

    A judge in this process has ``restoring`` put artifacts back where they are missing.

    A queue that does not answer does not stop the start: votes in the journal must still be revealed.
    """
    if not queue_url:
        fetching = Fetching(BlobStores(trusted=coordinators.urls), restore=restoring.put)
        return LocalJudge(fetching, juror), None
    judge = QueuedJudge(Exchange(queue_url), sender(queue_url), juror, jobs_per_order)
    return judge, judge.announce


def serve_background(settings: BackgroundSettings) -> int:
    """Takes orders from the queue until stopped; returns the exit code.

    Raises:
        Misconfigured: another worker uses the state folder.
        Unavailable: Redis does not answer.
    """
    configure("validator-background", settings.log_level)
    serve_metrics(settings.metrics_port)
    torch.set_num_threads(1)
    exchange = Exchange(settings.queue_url)
    exchange.check()
    with locked(settings.state_dir):
        coordinators = RunCoordinators(settings.coordinator_urls)
        checker = Checker(exchange, coordinators, settings.state_dir / "weights", settings.sources, settings.device)
        checker.start()
        try:
            return work(settings.queue_url, checker)
        finally:
            checker.close()


def locked(state_dir: Path) -> TextIO:
    """Keeps a state folder for this process alone until the returned file is closed.

    Raises:
        Misconfigured: another background worker uses the folder, or no file can be locked in it.
    """
    with accessing(f"lock {state_dir}"):
        state_dir.mkdir(parents=True, exist_ok=True)
        try:
            return lock(state_dir / "background.lock")
        except BlockingIOError as error:
            raise Misconfigured(
                f"another background worker uses {state_dir}: give this one an ASSIZE_VALIDATOR_STATE_DIR of its own"
            ) from error


def serve(settings: ValidatorSettings, kind: type[Validator] = Validator) -> int:
    """Runs until stopped; returns the exit code."""
    configure("validator", settings.log_level)
    serve_metrics(settings.metrics_port)
    return build(settings, kind).run()


def build(settings: ValidatorSettings, kind: type[Validator] = Validator) -> Daemon:
    """Returns the daemon, ready to run; raises ``Misconfigured`` or ``Unavailable``, naming what is missing."""
    torch.set_num_threads(1)
    load_kernels()
    wallet = settings.wallet()
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    node = node_of(chain, wallet.address, Role.VALIDATOR)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    deployment = chain.deployment
    coordinators = RunCoordinators(settings.coordinator_urls, wallet, deployment.chain_id, deployment.rounds)
    journal = VoteJournal(settings.state_dir)
    deliveries = Deliveries(coordinators, journal, node, settings.heartbeat_seconds)
    restoring = Restoring(coordinators)
    judge, announce = judge_of(settings.queue_url, node, coordinators, restoring)
    runs = Runs(coordinators, deployment, settings.state_dir / "weights", settings.sources, settings.device, announce)
    history = history_of(coordinators, journal, deployment, settings.state_dir, node)
    sampling = Sampling(history.steering, judge)
    validator = kind(
        chain=chain,
        node=node,
        signer=wallet,
        sender=Sender(chain, wallet, settings.state_dir / "sender.sqlite", Fees.capped(settings.fee_cap_gwei)),
        journal=journal,
        runs=runs,
        judge=judge,
        deliveries=deliveries,
        history=history,
        sampling=sampling,
        reserve_seconds=settings.reserve_seconds,
        patience_seconds=settings.patience_seconds,
        nudge_seconds=settings.nudge_seconds,
    )

    def in_view() -> list[RunRules]:
        served = chain.latest()
        return [each for run in validator.runs_served for each in rules_in_view(served, run, time.time())]

    releases = ReleaseWatch(
        in_view,
        lambda run, digest: coordinators.of(run).rules(digest),
        lambda sentences: validator.activity.note(behind=list(sentences)),
    )
    releases.start()

    def close() -> None:
        for part in (releases, deliveries, restoring, sampling, history, runs, journal, coordinators, chain, judge):
            part.close()

    health = settings.state_dir / HEALTH_FILE
    drain = DrainPlan(validator.drain, validator.drained, settings.drain_seconds)
    return Daemon(
        *("validator", validator.tick, settings.interval_seconds, health),
        close=close,
        activity=validator.activity,
        drain=drain,
    )
