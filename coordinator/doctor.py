"""Examinations of ``assize coordinator doctor``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from coordinator.driver.leases import Leases
from coordinator.driver.wiring import checked_run, read_rules
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
        return (
            Examination("coordinator", lambda: _coordinator(settings, chain, key), "use the key that the run names"),
            Examination("rules", lambda: _rules(settings, chain), "check ASSIZE_COORDINATOR_RULES"),
            Examination(
                "escrow", lambda: _escrow(settings, chain), f"fund it: `assize run fund {settings.run} AMOUNT`"
            ),
            gas(chain, key),
        )

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _database(settings: CoordinatorSettings) -> str:
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with closing(Store(settings.database)):
        return "opens"


def _redis(settings: CoordinatorSettings) -> str:
    with closing(Leases(settings.redis_url, settings.run)) as leases:
        return f"answers, {len(leases.held(time.time()))} nodes hold a lease"


def _coordinator(settings: CoordinatorSettings, chain: Chain, key: Key) -> str:
    named = checked_run(chain, settings.run).terms.coordinator
    if named != key.address:
        raise Misconfigured(f"run {settings.run} is coordinated by {named}: this key is {key.address}")
    return f"coordinates run {settings.run}"


def _rules(settings: CoordinatorSettings, chain: Chain) -> str:
    rules = read_rules(settings, checked_run(chain, settings.run))
    return f"rules of {rules.environment.name} match the chain"


def _escrow(settings: CoordinatorSettings, chain: Chain) -> str:
    escrow = checked_run(chain, settings.run).escrow
    if escrow == 0:
        raise Misconfigured(f"run {settings.run} has no escrow: no round can be opened")
    return tokens(escrow)
