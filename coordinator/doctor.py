"""Examinations of ``assize coordinator doctor``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx

from coordinator.api.precheck import PrecheckQueue
from coordinator.blobs import INCOMING, KeptBlobs
from coordinator.driver.leases import Leases
from coordinator.driver.wiring import checked_run, coming_rules, read_rules
from coordinator.settings import CoordinatorSettings, WebhookSettings
from coordinator.store import look_at
from coordinator.webhooks.sender import read_secret
from protocol.amounts import tokens
from protocol.certificates import certificate_authorities
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain, gas
from protocol.node.doctor import Examination, Key, Result, examine, of_settings
from protocol.transport.http import reaching


def diagnose(settings: CoordinatorSettings) -> Iterator[Result]:
    """Examines disk, key, database, Redis, store, chain, and the run's coordinator, rules and escrow."""
    key = Key(settings)
    yield from examine(
        (
            *of_settings(settings),
            key.examination(),
            Examination("database", lambda: _database(settings), "check ASSIZE_COORDINATOR_DATABASE_URL"),
            Examination("redis", lambda: _redis(settings), "check ASSIZE_COORDINATOR_REDIS_URL"),
            Examination("store", lambda: examine_store(settings), "check ASSIZE_COORDINATOR_OBJECTS, credentials"),
            *(
                Examination("webhook", partial(_webhook, each), "check [[coordinator.webhooks]]")
                for each in settings.webhooks
            ),
        )
    )

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        of_runs = [each for run in settings.runs for each in _of_run(settings, chain, key, run)]
        return (*of_runs, gas(chain, key))

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _webhook(webhook: WebhookSettings) -> str:
    read_secret(webhook.secret_file)
    return f"{webhook.shown} has its secret; try it with `assize coordinator webhooks --test`"


def _database(settings: CoordinatorSettings) -> str:
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    return f"opens, {look_at(settings.database)}"


def _redis(settings: CoordinatorSettings) -> str:
    with closing(Leases(settings.redis_url, settings.runs[0])) as leases:
        return f"answers, {len(leases.held(time.time()))} nodes hold a lease"


def examine_store(settings: CoordinatorSettings) -> str:
    """Writes, reads and deletes a blob; signs a URL and sends to it, where nodes are to do so.

    Raises ``Unavailable`` or ``Misconfigured`` where it cannot.
    """
    blobs, root, data = KeptBlobs.open(settings), secrets.token_bytes(32), b"doctor"
    blobs.trial.put(root, data)
    read = blobs.trial.get(root, len(data))
    blobs.trial.drop(root)
    if read != data or blobs.trial.has(root):
        raise Misconfigured("the store of artifacts does not return what was written, or does not delete it")
    objects = blobs.objects
    if objects is None:
        return "writes, reads and deletes"
    key = f"{INCOMING}/{root.hex()}"
    place = objects.sign_put(key, 60)
    with reaching(place.partition("?")[0]), httpx.Client(timeout=10, verify=certificate_authorities()) as client:
        status = client.put(place, content=data, headers=dict(objects.signed_headers)).status_code
    objects.delete([key])
    if status >= 300:
        raise Misconfigured(f"the store of artifacts answered {status} to a signed upload: let the key write objects")
    with closing(PrecheckQueue(settings.redis_url, settings.runs[0])) as queue:
        examined = queue.attended()
    unattended = "but nodes upload to this coordinator until `assize coordinator precheck` runs"
    return f"writes, reads, deletes and signs, {'and uploads are examined' if examined else unattended}"


def _of_run(settings: CoordinatorSettings, chain: Chain, key: Key, run: int) -> tuple[Examination, ...]:
    name = f" of run {run}" if len(settings.runs) > 1 else ""
    return (
        Examination(f"coordinator{name}", lambda: _coordinator(chain, key, run), "use the key that the run names"),
        Examination(
            f"rules{name}",
            lambda: _rules(settings, chain, settings.rules_files[run], run),
            "check ASSIZE_COORDINATOR_RULES",
        ),
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
