"""Examinations of ``assize coordinator doctor``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from coordinator.driver.leases import Leases
from coordinator.driver.wiring import checked_run, coming_rules, read_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, gas
from protocol.node.doctor import Examination, Key, Result, examine, of_settings


def diagnose(settings: CoordinatorSettings) -> Iterator[Result]:
    """Examines disk, key, database, Redis, chain, and the run's coordinator, rules and escrow."""
    key = Key(settings)
    yield from examine(
        (
            *of_settings(settings),
            key.examination(),
            Examination("database", lambda: _database(settings), "check ASSIZE_COORDINATOR_DATABASE_URL"),
            Examination("redis", lambda: _redis(settings), "check ASSIZE_COORDINATOR_REDIS_URL"),
        )
    )

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        of_runs = [each for run in settings.runs for each in _of_run(settings, chain, key, run)]
        return (*of_runs, gas(chain, key))

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _database(settings: CoordinatorSettings) -> str:
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with closing(Store(settings.database)):
        return "opens"


def _redis(settings: CoordinatorSettings) -> str:
    with closing(Leases(settings.redis_url, settings.runs[0])) as leases:
        return f"answers, {len(leases.held(time.time()))} nodes hold a lease"


def _of_run(settings: CoordinatorSettings, chain: Chain, key: Key, run: int) -> tuple[Examination, ...]:
    name = f" of run {run}" if len(settings.runs) > 1 else ""
    file = settings.rules_files[run]
    return (
        Examination(f"coordinator{name}", lambda: _coordinator(chain, key, run), "use the key that the run names"),
        Examination(f"rules{name}", lambda: _rules(settings, chain, file, run), "check ASSIZE_COORDINATOR_RULES"),
        Examination(f"escrow{name}", lambda: _escrow(chain, run), f"fund it: `assize run fund {run} AMOUNT`"),
    )


def _coordinator(chain: Chain, key: Key, run: int) -> str:
    named = checked_run(chain, run).terms.coordinator
    if named != key.address:
        raise Misconfigured(f"run {run} is coordinated by {named}: this key is {key.address}")
    return f"coordinates run {run}"


def _rules(settings: CoordinatorSettings, chain: Chain, file: Path, run: int) -> str:
    rules = read_rules(file, run, checked_run(chain, run), coming_rules(settings))
    return f"rules of {rules.environment.name} match the chain"


def _escrow(chain: Chain, run: int) -> str:
    escrow = checked_run(chain, run).escrow
    if escrow == 0:
        raise Misconfigured(f"run {run} has no escrow: no round can be opened")
    return tokens(escrow)
