"""What a validator needs before it can judge, looked at one by one."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protocol.chain.reading.client import Chain
from protocol.errors import AssizeError
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.sources import Sources
from protocol.wire.rules import decode_rules
from validator.service import node_of
from validator.settings import ValidatorSettings

LEAST_DISK_BYTES = 2 << 30
LEAST_GAS_WEI = 10**15
LARGEST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Preflight:
    """One thing looked at, whether it will do, and what was found."""

    check: str
    ok: bool
    found: str


def examine(settings: ValidatorSettings) -> Iterator[Preflight]:
    """Looks at disk, key, chain, node, gas, coordinator, rules and sources; a check that fails says why."""
    yield _disk(settings.state_dir)
    yield _attempt("key", lambda: settings.wallet().address)
    try:
        chain = Chain.connect(settings.rpc_url, settings.addresses)
    except AssizeError as error:
        yield Preflight("chain", False, str(error))
        return
    with closing(chain), closing(CoordinatorClient(settings.coordinator_url)) as client:
        yield Preflight("chain", True, f"chain {chain.chain_id}, block {chain.head().number}")
        yield _attempt("node", lambda: _node(settings, chain))
        yield _attempt("gas", lambda: _gas(settings, chain))
        yield _attempt("coordinator", lambda: f"answers, folded block {client.health().head}")
        for run in _open_runs(chain):
            yield _attempt(f"run {run}", functools.partial(_run, settings, chain, client, run))


def _attempt(check: str, look: Callable[[], str]) -> Preflight:
    try:
        return Preflight(check, True, look())
    except AssizeError as error:
        return Preflight(check, False, str(error))


def _disk(folder: Path) -> Preflight:
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    return Preflight("disk", free >= LEAST_DISK_BYTES, f"{free / 2**30:.1f} GiB free at {place}")


def _node(settings: ValidatorSettings, chain: Chain) -> str:
    node, reader = node_of(chain, settings.wallet()), chain.latest()
    if not reader.is_listable(node):
        raise AssizeError(f"node {node} cannot be drawn: not active yet, retired, or its bond is too small")
    return f"node {node} can be drawn"


def _gas(settings: ValidatorSettings, chain: Chain) -> str:
    held = chain.latest().native_balance(settings.wallet().address)
    if held < LEAST_GAS_WEI:
        raise AssizeError(f"{held} wei of the chain's coin; votes cost gas, so send it some")
    return f"{held} wei"


def _open_runs(chain: Chain) -> list[int]:
    reader = chain.latest()
    return [run for run in range(1, reader.run_count() + 1) if not reader.run(run).closed]


def _run(settings: ValidatorSettings, chain: Chain, client: CoordinatorClient, run: int) -> str:
    terms = chain.latest().run(run).terms
    rules = decode_rules(client.rules(terms.rules_hash), terms.rules_hash)
    with closing(Sources(settings.sources or tuple(client.run(run).sources))) as sources:
        path = f"/runs/{run}/checkpoints/latest"
        answering = sum(sources.get(url, path, LARGEST_ANSWER_BYTES) is not None for url in sources.urls)
    return f"rules of {rules.environment.name} match the chain, {answering} sources of weights answer"
