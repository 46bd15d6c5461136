"""Construction of the driver's process from its settings."""

from __future__ import annotations

import time
from pathlib import Path

import structlog

from coordinator.driver.batching import Batcher
from coordinator.driver.driver import Driver
from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Notifier
from coordinator.driver.opener import RoundOpener
from coordinator.driver.schedule import BatchingDelays
from coordinator.mirror.mirror import Mirror
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import RulesRow
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Run
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.pending import TransactionSigner
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Unavailable, accessing
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon
from protocol.wire.canonical import validating
from protocol.wire.rules import Rules, encode_rules, rules_hash

log = structlog.get_logger()

LONGEST_BACKOFF_SECONDS = 5.0
"""Longest pause after errors."""

EXPIRE_SECONDS = 5.0
"""Time between deletions of expired leases."""


class DriverProcess:
    """The mirror, driver and leases of one run. One thread calls ``tick``."""

    def __init__(self, settings: CoordinatorSettings, signer: TransactionSigner) -> None:
        """Connects to chain, database and Redis.

        Raises:
            Misconfigured: wrong chain, run, key or rules file, or a second process with this key.
            Unavailable: chain, database or Redis do not answer.
        """
        chain = Chain.connect(settings.rpc_url, settings.addresses)
        run = checked_run(chain, settings.run)
        if run.terms.coordinator != signer.address:
            raise Misconfigured(
                f"run {settings.run} is coordinated by {run.terms.coordinator}, "
                f"the keystore {settings.keystore} holds {signer.address}"
            )
        rules = read_rules(settings, run)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        self._store = Store(settings.database)
        keep_rules(self._store, rules)
        self._leases = Leases(settings.redis_url, settings.run)
        self._leases.held(time.time())
        self.notifier = Notifier(settings.redis_url, settings.run)
        self._sender = Sender(chain, signer, settings.state_dir / "sender.db", Fees.capped(settings.fee_cap_gwei))
        self._driver = Driver(
            settings.run,
            Mirror(chain, self._store, settings.confirmations),
            self._sender,
            RoundOpener(self._store, self._leases, self._sender, settings, rules),
            Batcher(
                self._store, self._sender, BatchingDelays(settings.relay_wait_seconds, settings.relay_margin_seconds)
            ),
        )
        self._expire_at = 0.0

    def tick(self) -> None:
        """Sends everything that is due. Raises ``Unavailable`` if chain, database or Redis do not answer."""
        self._driver.advance()
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + EXPIRE_SECONDS
            self._expire_leases()

    def _expire_leases(self) -> None:
        try:
            for node in self._leases.expire(time.time()):
                log.info("lease_ended", node=node)
        except Unavailable as error:  # expired leases do not count anyway: driving goes on
            log.warning("unavailable", error=str(error))

    def close(self) -> None:
        """Releases the key and closes the connections."""
        self._sender.close()
        self._sender.chain.close()
        self._leases.close()
        self.notifier.close()
        self._store.close()


def build(settings: CoordinatorSettings) -> Daemon:
    """Returns the daemon that drives the run's rounds.

    Raises:
        Misconfigured, Unavailable: as ``DriverProcess``.
    """
    process = DriverProcess(settings, settings.wallet())
    daemon = Daemon(
        "coordinator-driver",
        process.tick,
        settings.tick_seconds,
        settings.state_dir / HEALTH_FILE,
        LONGEST_BACKOFF_SECONDS,
        process.close,
    )
    process.notifier.listen(daemon.wake.set)
    return daemon


def checked_run(chain: Chain, run: int) -> Run:
    """Reads the run from the chain. Raises ``Misconfigured`` for an unknown run."""
    try:
        return chain.latest().run(run)
    except Reverted as error:
        raise Misconfigured(f"there is no run {run} on this deployment: open one with `assize run open`") from error


def read_rules(settings: CoordinatorSettings, run: Run) -> Rules:
    """Reads the run's rules from their file, or from that of the coming ones once these are in effect.

    Raises:
        Misconfigured: their hash is not the one on chain.
        Rejected: they pin no checkpoint.
    """
    coming = coming_rules(settings)
    if coming is not None and rules_hash(encode_rules(coming)) == run.terms.rules_hash:
        return coming
    rules = _rules_in(settings.rules)
    digest = rules_hash(encode_rules(rules))
    if digest != run.terms.rules_hash:
        raise Misconfigured(
            f"the rules in {settings.rules} hash to 0x{digest.hex()}, run {settings.run} was opened with "
            f"0x{run.terms.rules_hash.hex()}: use the file it was opened with"
        )
    _ = rules.pins
    return rules


def coming_rules(settings: CoordinatorSettings) -> Rules | None:
    """Reads the rules that are announced, None where the settings name none; raises as ``read_rules``."""
    if settings.coming_rules is None:
        return None
    rules = _rules_in(settings.coming_rules)
    _ = rules.pins
    return rules


def _rules_in(path: Path) -> Rules:
    name = f"the rules file {path}"
    with accessing(f"read {name}"), validating(name, Misconfigured):
        return Rules.model_validate_json(path.read_bytes())


def keep_rules(store: Store, rules: Rules) -> None:
    """Stores the rules, to be served by hash."""
    body = encode_rules(rules)
    with store.writing() as session:
        session.merge(RulesRow(hash=rules_hash(body), body=body))
