"""The hardware report of a worker, and the examinations of ``assize worker doctor``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import psutil
import torch

from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import coordinator_uri
from protocol.chain.structs import Role, RunTerms
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, node_examinations, node_of
from protocol.node.commands.releases import examined_release
from protocol.node.doctor import Examination, Key, Result, disk, examine
from protocol.transport.coordinator import CoordinatorClient, describe_coordinator
from protocol.wire.api import Hardware
from worker.engines.registry import engine_packages, find_engine, installed_versions
from worker.machine_class import class_for
from worker.settings import WorkerSettings

LEAST_MEMORY_BYTES = 1 << 30


def describe() -> Hardware:
    """Returns what a heartbeat reports of this machine."""
    accelerators = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Hardware(
        cpu_cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        accelerators=[properties.name for properties in accelerators],
        accelerator_memory_bytes=sum(properties.total_memory for properties in accelerators),
        software=installed_versions(("assize", "torch", *engine_packages())),
    )


def diagnose(settings: WorkerSettings) -> Iterator[Result]:
    """Examines machine, engine, key, chain, node and coordinator."""
    hardware, key = describe(), Key(settings)
    yield from examine(
        (
            Examination("memory", lambda: _memory(hardware)),
            disk(settings.state_dir),
            Examination("device", lambda: _device(settings.device, hardware), "set ASSIZE_WORKER_DEVICE=cpu"),
            Examination("engine", lambda: _engine(settings.engine), "or set another ASSIZE_WORKER_ENGINE"),
            key.examination(),
        )
    )

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        joined = Examination("joined", lambda: _joined(settings, chain, key))
        of_class = Examination("class", lambda: class_for(chain, settings.run, told or None, (), settings.device))
        release = Examination("version", lambda: examined_release(chain, settings.run, told))
        named = () if told else _of_coordinator(settings.run, lambda: coordinator_uri(chain, settings.run))
        return (*node_examinations(chain, key, Role.WORKER), joined, release, *named, of_class)

    told = settings.coordinator_url
    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)
    if told:
        yield from examine(_of_coordinator(settings.run, lambda: told))


def _of_coordinator(run: int, url: Callable[[], str]) -> tuple[Examination, ...]:
    return (
        Examination("coordinator", lambda: describe_coordinator(url()), "check ASSIZE_WORKER_COORDINATOR_URL"),
        Examination("run", lambda: _run(url(), run), "check ASSIZE_WORKER_RUN"),
    )


def _memory(hardware: Hardware) -> str:
    if hardware.memory_bytes < LEAST_MEMORY_BYTES:
        raise Misconfigured(f"{hardware.memory_bytes / 2**30:.1f} GiB of memory: expected at least 1 GiB")
    return f"{hardware.memory_bytes / 2**30:.1f} GiB"


def _device(device: str, hardware: Hardware) -> str:
    if device == "cpu":
        return f"{hardware.cpu_cores} processor cores, {torch.get_num_threads()} threads"
    if not hardware.accelerators:
        raise Misconfigured("no CUDA device found")
    return ", ".join(hardware.accelerators)


def _engine(name: str) -> str:
    entry = find_engine(name)
    entry.check_installed()
    return f"{name}; " + ", ".join(f"{package} {version}" for package, version in entry.versions().items())


def check_joined(chain: Chain, run: int, node: int) -> RunTerms:
    """Returns a run's terms once a node has joined at their rules; raises ``Misconfigured`` otherwise."""
    reader = chain.latest()
    terms = reader.run(run).terms
    if reader.joined_at(run, node) != terms.rules_hash:
        raise Misconfigured(
            f"node {node} has not joined run {run} at its present rules: join with `assize run join {run} {node}`"
        )
    return terms


def _joined(settings: WorkerSettings, chain: Chain, key: Key) -> str:
    check_joined(chain, settings.run, node_of(chain, key.address))
    return f"run {settings.run}"


def _run(url: str, run: int) -> str:
    with closing(CoordinatorClient(url)) as client:
        return f"weights from {', '.join(client.run(run).weights_from)}"
