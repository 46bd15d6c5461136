"""Construction of the driver's process from its settings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from coordinator.blobs import KeptBlobs
from coordinator.driver.batching import Batcher
from coordinator.driver.clock import RENEW_SECONDS, ClockLease, HoldersSigner
from coordinator.driver.driver import Driver
from coordinator.driver.figures import hide_runs, show_run
from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Notifier
from coordinator.driver.opener import RoundOpener, run_progress
from coordinator.driver.retention import Retention
from coordinator.driver.schedule import BatchingDelays
from coordinator.mirror.mirror import Mirror
from coordinator.settings import CoordinatorSettings, HookKind
from coordinator.store import Store, upsert
from coordinator.tables import RulesRow
from coordinator.webhooks.outbox import HookOutbox
from coordinator.webhooks.sender import HookSender
from protocol.chain.reading.client import Chain
from protocol.chain.reading.own_standing import OwnStanding
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

CLOCK_FILE = "clock.lock"
"""File of the state directory that a driving process locks."""

EXPIRE_SECONDS = 5.0
"""Time between deletions of expired leases."""

SHOW_SECONDS = 1.0
"""Time between two looks at the run's figures."""


class DriverProcess:
    """One process that drives its runs, or stands by while another one does. One thread calls ``tick``."""

    def __init__(self, settings: CoordinatorSettings, signer: TransactionSigner) -> None:
        """Connects to chain, database and Redis, and takes the clock if nobody holds it.

        Raises:
            Misconfigured: wrong chain, run, key or rules file, or a second process with this key on another database.
            Unavailable: chain, database or Redis do not answer.
        """
        self._settings, self._signer = settings, signer
        self._chain = Chain.connect(settings.rpc_url, settings.addresses)
        self._rules: dict[int, Rules] = {}
        for number, file in settings.rules_files.items():
            run = checked_run(self._chain, number)
            if run.terms.coordinator != signer.address:
                raise Misconfigured(
                    f"run {number} is coordinated by {run.terms.coordinator}, "
                    f"the keystore {settings.keystore} holds {signer.address}"
                )
            self._rules[number] = read_rules(file, number, run, coming_rules(settings))
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        self._store = Store(settings.database)
        log.info("tables", found=self._store.migrated)
        keep_rules(self._store, *self._rules.values())
        self._leases = {run: Leases(settings.redis_url, run) for run in settings.runs}
        self._leases[settings.runs[0]].held(time.time())
        self.notifier = Notifier(settings.redis_url, settings.runs[0])
        self.hooks = HookSender(settings, self._store, self._chain)
        self._retention = Retention(settings, self._store, KeptBlobs.open(settings))
        self._clock = ClockLease(self._store, settings.state_dir / CLOCK_FILE)
        self._sender: Sender | None = None
        self._driver: Driver | None = None
        self._batcher: Batcher | None = None
        self._expire_at = self._take_at = self._show_at = self._began = 0.0
        self._standing = OwnStanding(self._chain, signer.address, settings.runs)
        if settings.metrics_port:
            self._standing.start()
        self._stood_by = False
        self._take()
        self._retention.start(lambda: self.driving)

    @property
    def driving(self) -> bool:
        """True while this process drives, False while it stands by."""
        return self._driver is not None

    def tick(self) -> None:
        """Sends everything that is due, if this process drives.

        Raises:
            Unavailable: chain, database or Redis do not answer, or another process has taken the clock.
        """
        if self._clock.lost:
            self._stand_by()
        if self._driver is None and time.monotonic() >= self._take_at:
            self._take()
        if self._driver is None:
            return
        self._driver.advance()
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + EXPIRE_SECONDS
            self._expire_leases()
        if time.monotonic() >= self._show_at:
            self._show_at = time.monotonic() + SHOW_SECONDS
            self._show()

    def _show(self) -> None:
        """Shows the runs' figures to those who watch."""
        assert self._driver is not None
        assert self._batcher is not None
        market, waiting = self._driver.market, self._batcher.waiting
        for number, leases in self._leases.items():
            if (run := market.runs.get(number)) is not None:
                leased = len(leases.held(time.time()))
                show_run(market, run_progress(run, self._settings.jobs_per_round), leased, waiting, self._began)

    def _take(self) -> None:
        """Takes the clock if it can, and begins to drive from what is in the database."""
        self._take_at = time.monotonic() + RENEW_SECONDS
        if not self._clock.take():
            if not self._stood_by:
                log.info("standing_by", why="another process drives; this one takes over when it ends")
            self._stood_by = True
            return
        try:
            self._driver, self._began = self._new_driver(), time.time()
            if self._stood_by:
                self._tell_of_takeover()
        except BaseException as error:
            self._stand_by()
            if isinstance(error, Misconfigured) and self._stood_by:  # the former process is stopped, not gone
                raise Unavailable(str(error)) from error
            raise

    def _tell_of_takeover(self) -> None:
        with self._store.writing() as session:
            HookOutbox.of(self._settings).announce(session, HookKind.CLOCK, self._settings.runs[0], time.time())

    def _new_driver(self) -> Driver:
        settings, store = self._settings, self._store.checked_by(self._clock.check)
        journal, fees = settings.state_dir / "sender.db", Fees.capped(settings.fee_cap_gwei)
        sender = self._sender = Sender(self._chain, HoldersSigner(self._signer, store), journal, fees)
        delays = BatchingDelays(settings.relay_wait_seconds, settings.relay_margin_seconds)
        openers = [
            RoundOpener(run, store, self._leases[run], sender, settings, rules) for run, rules in self._rules.items()
        ]
        mirror = Mirror(self._chain, store, settings.confirmations, HookOutbox.of(settings))
        self._batcher = Batcher(store, sender, delays)
        return Driver(mirror, sender, openers, self._batcher)

    def _stand_by(self) -> None:
        """Ends driving and releases the key and the clock."""
        if self._clock.lost:
            log.warning("standing_by", why="another process took the clock while this one was paused or cut off")
            self._stood_by = True
        if self._sender is not None:
            self._sender.close()
        self._sender = self._driver = None
        hide_runs()
        self._clock.release()

    def _expire_leases(self) -> None:
        try:
            for run, leases in self._leases.items():
                for node in leases.expire(time.time()):
                    log.info("lease_ended", run=run, node=node)
        except Unavailable as error:  # expired leases do not count anyway: driving goes on
            log.warning("unavailable", error=str(error))

    def close(self) -> None:
        """Releases the key and the clock and closes the connections."""
        self._stand_by()  # first: another process waits for the clock
        self._standing.stop()
        self.hooks.close()
        self._retention.close()
        self._clock.close()
        self._chain.close()
        for leases in self._leases.values():
            leases.close()
        self.notifier.close()
        self._store.close()


def build(settings: CoordinatorSettings) -> Daemon:
    """Returns the daemon that drives the runs' rounds.

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
    process.notifier.listen(daemon.wake.set, lambda: process.driving)
    process.hooks.start(lambda: process.driving)
    return daemon


def checked_run(chain: Chain, run: int) -> Run:
    """Reads the run from the chain. Raises ``Misconfigured`` for an unknown run."""
    try:
        return chain.latest().run(run)
    except Reverted as error:
        raise Misconfigured(f"there is no run {run} on this deployment: open one with `assize run open`") from error


def read_rules(file: Path, number: int, run: Run, coming: Iterable[Rules] = ()) -> Rules:
    """Reads the rules of the run with this number from their file, or takes the coming ones once these are in effect.

    Raises:
        Misconfigured: their hash is not the one on chain.
        Rejected: they pin no checkpoint.
    """
    for each in coming:
        if rules_hash(encode_rules(each)) == run.terms.rules_hash:
            return each
    rules = _rules_in(file)
    digest = rules_hash(encode_rules(rules))
    if digest != run.terms.rules_hash:
        raise Misconfigured(
            f"the rules in {file} hash to 0x{digest.hex()}, run {number} was opened with "
            f"0x{run.terms.rules_hash.hex()}: use the file it was opened with"
        )
    _ = rules.pins
    return rules


def coming_rules(settings: CoordinatorSettings) -> list[Rules]:
    """Reads the rules that are announced, none where the settings name none; raises as ``read_rules``."""
    if settings.coming_rules is None:
        return []
    rules = _rules_in(settings.coming_rules)
    _ = rules.pins
    return [rules]


def _rules_in(path: Path) -> Rules:
    name = f"the rules file {path}"
    with accessing(f"read {name}"), validating(name, Misconfigured):
        return Rules.model_validate_json(path.read_bytes())


def keep_rules(store: Store, *rules: Rules) -> None:
    """Stores rules, to be served by hash."""
    bodies = [encode_rules(each) for each in rules]
    with store.writing() as session:
        upsert(session, [RulesRow(hash=rules_hash(body), body=body) for body in bodies])
