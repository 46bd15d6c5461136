"""Assembles a worker from its settings and runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.chain.reading.plantings import Plantings
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.chain.writing.trapping import set_numbered
from protocol.errors import Misconfigured
from protocol.node import telemetry
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon, DrainPlan
from protocol.node.trap_file import TrapFile
from protocol.tensor.determinism import ExactShape
from protocol.tensor.kernels import load_kernels
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.rules import Rules
from worker.daemon import Produce, Worker
from worker.earnings import round_line
from worker.engines.engine import Engine
from worker.engines.registry import make_engine
from worker.planting import Planting
from worker.producer import Producer
from worker.settings import WorkerSettings

INTERVAL_SECONDS = 0.05


def build(settings: WorkerSettings, produce: Produce = Producer) -> Worker:
    """Connects to chain and coordinator and returns the worker.

    Raises:
        Misconfigured: a key, a node, a run or an engine is missing; the message says which.
        Unavailable: the chain or the coordinator does not answer.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    wallet = settings.wallet()
    chain = Chain.connect(settings.rpc_url, settings.addresses)
    rounds_address = chain.deployment.address_of("Rounds")
    url = coordinator_uri(chain, settings.run, settings.coordinator_url)
    client = CoordinatorClient(url, wallet, chain.chain_id, rounds_address, settings.run)
    rules_hash = chain.latest().run(settings.run).terms.rules_hash
    rules = client.rules(rules_hash)
    engine = engine_of(settings, rules)
    load_kernels()
    sender = Sender(chain, wallet, settings.state_dir / "sender.db", Fees.capped(settings.fee_cap_gwei))
    if settings.traps is not None:
        produce = _planting(settings.traps, settings.run, chain)
    return Worker(settings, wallet, chain, client, sender, engine, produce)


def _planting(path: Path, run: int, chain: Chain) -> Produce:
    file = TrapFile.read(path)
    file.check(path, chain.chain_id, chain.deployment.traps, run)
    set_numbered(chain, run, file.given())  # a fault that no set names would be slashed for nothing
    return partial(Planting, planted=Plantings(chain, run, file.given()).in_round)


def engine_of(settings: WorkerSettings, rules: Rules) -> Engine:
    """Returns the engine that the settings name, without a model.

    Raises:
        Misconfigured: the run's thresholds were not calibrated for it, or it is not installed.
    """
    if settings.engine not in rules.model.worker_engines:
        raise Misconfigured(
            f"run {settings.run} does not allow engine {settings.engine!r}: its thresholds were not calibrated for it; "
            f"set ASSIZE_WORKER_ENGINE to one of {', '.join(rules.model.worker_engines)}"
        )
    check_devices(settings)
    parallel = settings.tensor_parallel, settings.pipeline_parallel
    return make_engine(settings.engine, rules.model.dtype, settings.device, ExactShape.of(rules), parallel)


def check_devices(settings: WorkerSettings) -> None:
    """Raises ``Misconfigured`` if this process sees fewer accelerators than its engine is to compute on."""
    found = torch.cuda.device_count() if settings.device == "cuda" else settings.parallel
    if found < settings.parallel:
        raise Misconfigured(
            f"{found} CUDA devices found for tensor_parallel {settings.tensor_parallel} times pipeline_parallel "
            f"{settings.pipeline_parallel}: expected {settings.parallel}; set device to cpu, or give more devices"
        )


def serve(settings: WorkerSettings, produce: Produce = Producer) -> int:
    """Works until stopped; returns the exit code."""
    telemetry.configure("worker", settings.log_level, lines={"round_ended": round_line})
    telemetry.serve_metrics(settings.metrics_port)
    torch.set_grad_enabled(False)
    worker = build(settings, produce)
    worker.start_background()

    def drained() -> bool:
        done = worker.drained()
        if done:
            worker.drain.end()
        return done

    daemon = Daemon(
        "worker",
        worker.tick,
        INTERVAL_SECONDS,
        settings.state_dir / HEALTH_FILE,
        close=worker.close,
        activity=worker.activity,
        drain=DrainPlan(worker.drain.begin, drained, settings.drain_seconds),
    )
    return daemon.run()
