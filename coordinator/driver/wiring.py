"""The background process put together: from settings to what its tasks call."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import structlog
from pydantic import ValidationError

from coordinator.driver.batching import Relay
from coordinator.driver.driver import Driver
from coordinator.driver.leases import Leases
from coordinator.driver.notifier import Bell
from coordinator.driver.opener import Openings, OpeningTerms
from coordinator.driver.pacing import Ambition
from coordinator.driver.schedule import Patience
from coordinator.driver.selection import Admission
from coordinator.mirror.mirror import Mirror
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import Rules as RulesRow
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Run
from protocol.chain.reverts import Reverted
from protocol.chain.writing.pending import TransactionSigner
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Unavailable
from protocol.node.daemon import backoff_seconds
from protocol.wire.rules import Rules, encode_rules, rules_hash

log = structlog.get_logger()

LONGEST_BACKOFF_SECONDS = 5.0


class Clockwork:
    """Mirror, driver and leases of one run. One thread calls it."""

    def __init__(self, settings: CoordinatorSettings, signer: TransactionSigner) -> None:
        """Connects to everything.

        Raises:
            Misconfigured: a wrong chain, run, key or rules file, or a second process with this key.
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
        self._bell = Bell(settings.redis_url, settings.run)
        self._sender = Sender(chain, signer, settings.state_dir / "sender.db")
        self._driver = Driver(
            settings.run,
            Mirror(chain, self._store, settings.confirmations),
            self._sender,
            Openings(self._store, self._leases, self._sender, _terms(settings, rules)),
            Relay(self._store, self._sender, Patience(settings.relay_wait_seconds, settings.relay_margin_seconds)),
        )
        self._tick_seconds = settings.tick_seconds
        self._failures = 0
        self._problem = ""

    def watch(self, seconds: float, stopping: Callable[[], bool]) -> None:
        """Advances again and again for ``seconds``, or until ``stopping``, pausing in between as `advance` says."""
        end = time.monotonic() + seconds
        while True:
            pause = self.advance()
            if stopping() or time.monotonic() + pause >= end:
                return
            self._bell.wait(pause)

    def advance(self) -> float:
        """Does what is due; returns the pause until the next look, longer each time something does not answer."""
        try:
            self._driver.advance()
        except Unavailable as error:
            self._failures += 1
            if str(error) != self._problem:
                log.warning("unavailable", error=str(error))
            self._problem = str(error)
            return backoff_seconds(self._failures, self._tick_seconds, LONGEST_BACKOFF_SECONDS, random.random())
        if self._failures:
            log.info("recovered", failures=self._failures)
        self._failures, self._problem = 0, ""
        return self._tick_seconds

    def expire(self) -> None:
        """Ends leases of silent nodes."""
        try:
            for node in self._leases.expire(time.time()):
                log.info("lease_ended", node=node)
        except Unavailable as error:
            log.warning("unavailable", error=str(error))

    def close(self) -> None:
        """Lets go of the key and closes the connections."""
        self._sender.close()
        self._sender.chain.close()
        self._leases.close()
        self._bell.close()
        self._store.close()


def checked_run(chain: Chain, run: int) -> Run:
    """The run as it stands on chain. Raises ``Misconfigured`` where there is none."""
    try:
        return chain.latest().run(run)
    except Reverted as error:
        raise Misconfigured(f"there is no run {run} on this deployment; open one with `assize run open`") from error


def read_rules(settings: CoordinatorSettings, run: Run) -> Rules:
    """The run's rules from the file. Raises ``Misconfigured`` unless they hash to what is on chain."""
    try:
        rules = Rules.model_validate_json(settings.rules.read_bytes())
    except OSError as error:
        raise Misconfigured(f"cannot read the rules file {settings.rules}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise Misconfigured(f"the rules file {settings.rules}: {where}: {first['msg']}") from error
    digest = rules_hash(encode_rules(rules))
    if digest != run.terms.rules_hash:
        raise Misconfigured(
            f"the rules in {settings.rules} hash to 0x{digest.hex()}, run {settings.run} was opened with "
            f"0x{run.terms.rules_hash.hex()}: use the file it was opened with"
        )
    return rules


def keep_rules(store: Store, rules: Rules) -> None:
    """Keeps the rules for serving by hash."""
    body = encode_rules(rules)
    with store.writing() as session:
        session.merge(RulesRow(hash=rules_hash(body), body=body))


def _terms(settings: CoordinatorSettings, rules: Rules) -> OpeningTerms:
    ambition = Ambition(rules.async_level, settings.max_rounds, settings.last_version)
    digest = rules_hash(encode_rules(rules))
    admission = Admission(settings.version_lag, rules.sequential.neglect_bound)
    return OpeningTerms(settings.run, digest, settings.jobs_per_round, settings.first_round_nodes, ambition, admission)
