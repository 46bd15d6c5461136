"""The background worker's side of an order: leases the jobs, fetches artifacts and weights, judges, answers.

Failures of the worker itself never count against a node: such jobs are answered as failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from protocol.errors import Unavailable
from protocol.tensor.determinism import AnotherClass
from protocol.transport.blobs import BlobStores
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.evidence import Finding
from protocol.wire.manifest import Authority
from protocol.wire.pins import UnfitCheckpoint
from validator.judging.claims import NO_ROOT, Claim
from validator.judging.fetching import Fetching
from validator.judging.judge import FetchedJob, judge, judge_unfit, limits_of
from validator.judging.runs import JudgingContext, learn_context
from validator.queue.exchange import Exchange
from validator.queue.orders import Answer, Kind, Order, decode_order
from validator.records.resampling import sampled_job

WEIGHTS_SECONDS = 120.0
"""Time that an order waits for its weights before it is answered as later."""
ARTIFACT_SECONDS = 3.0
"""Time that orders wait for an artifact. One that has not arrived then goes on arriving, for the next such order."""
IDLE_SECONDS = 120.0
"""Time after which an artifact that no order names any more is forgotten."""
LOOK_SECONDS = 0.02
PREFETCH_SECONDS = 2.0

log = structlog.get_logger()


class Checker:
    """Judges orders in a background worker. ``take`` is called by one thread at a time."""

    def __init__(
        self,
        exchange: Exchange,
        coordinators: RunCoordinators,
        directory: Path,
        sources: tuple[str, ...] = (),
        device: str = "cpu",
    ) -> None:
        self._exchange, self._coordinators, self._directory = exchange, coordinators, directory
        self._sources, self._device, self._fetching = sources, device, Fetching(BlobStores(trusted=coordinators.urls))
        self._known: dict[tuple[int, bytes, str], JudgingContext] = {}
        self._named: dict[int, str] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._asked_at, self._orders_wait = 0.0, False
        self._prefetching = threading.Thread(target=self._prefetch, name="prefetch", daemon=True)

    def start(self) -> None:
        """Starts fetching announced weights."""
        self._prefetching.start()

    def take(self, text: str) -> None:
        """Judges the jobs of an order that no other worker has leased, and stores their answers."""
        order = decode_order(text)
        taken = set(self._exchange.lease(order.keys))
        claims = [claim for claim in order.claims if order.key(claim) in taken]
        if not claims:
            return
        with self._exchange.renewing(sorted(taken)):
            answers = self.answers(order, claims)
        self._exchange.answer(
            {order.key(claim): answer.encode() for claim, answer in zip(claims, answers, strict=True)}
        )

    def answers(self, order: Order, claims: Sequence[Claim]) -> list[Answer]:
        """Returns an answer for each claim."""
        try:
            return [self._sample(order, claim) for claim in claims] if order.secret else self._judge(order, claims)
        except UnfitCheckpoint as error:
            if order.secret:
                return [Answer(Kind.FAILED, str(error))] * len(claims)
            return [Answer(Kind.JUDGED, evidence=one.evidence) for one in judge_unfit(claims, error)]
        except Unavailable as error:
            log.warning("put_off", run=order.run, version=order.version, error=str(error))
            return [Answer(Kind.LATER, str(error))] * len(claims)
        except AnotherClass as error:
            log.warning("another_class", run=order.run, error=str(error))
            return [Answer(Kind.FAILED, str(error))] * len(claims)
        except Exception as error:
            log.error("judging_failed", run=order.run, error=repr(error), exc_info=True)
            return [Answer(Kind.FAILED, repr(error))] * len(claims)

    def close(self) -> None:
        """Ends the fetches and closes the connections."""
        self._over.set()
        for context in self._known.values():
            context.weights.close()
        self._fetching.close()
        self._coordinators.close()
        self._exchange.close()

    def _judge(self, order: Order, claims: Sequence[Claim]) -> list[Answer]:
        context, version = self._context(order), (order.version, order.manifest_root)
        context.weights.prepare(*version)
        fetched = self._arrived(context, claims)
        ready = [FetchedJob(claim, data) for claim, data in fetched.items() if data is not None]
        if (refusal := context.weights.refusal(*version)) is not None:
            raise refusal
        if not ready:
            return [self._without_artifact(claim) for claim in claims]
        policy = context.weights.wait_for(*version, WEIGHTS_SECONDS)
        judgements = judge(policy, context.rules, ready, order.juror)
        log.info("checked", run=order.run, version=order.version, jobs=len(judgements))
        judged = {one.claim: Answer(Kind.JUDGED, evidence=one.evidence, rows=one.rows) for one in judgements}
        answers = [judged.get(claim) or self._without_artifact(claim) for claim in claims]
        self._fetching.forget(judged)
        return answers

    def _sample(self, order: Order, claim: Claim) -> Answer:
        context, version = self._context(order), (order.version, order.manifest_root)
        if not context.weights.prepare(*version):
            return Answer(Kind.LATER, "its weights have not arrived yet")
        data = b"" if claim.root == NO_ROOT else self._arrived(context, [claim])[claim]
        if data is None:
            return self._without_artifact(claim)
        policy = context.weights.policy(*version)
        groups = sampled_job(policy, context.rules, claim, data, order.secret, self._wanted)
        log.info("sampled", run=order.run, version=order.version, round=claim.round, job=claim.job)
        self._fetching.forget([claim])
        return Answer(Kind.SAMPLED, groups=tuple(groups))

    def _wanted(self) -> bool:
        """Returns whether sampling is to be broken off, since jobs wait to be judged; looks once a second."""
        now = time.monotonic()
        if now - self._asked_at > 1.0:
            self._asked_at = now
            self._orders_wait = self._exchange.queued > 0
        return self._over.is_set() or self._orders_wait

    def _arrived(self, context: JudgingContext, claims: Sequence[Claim]) -> dict[Claim, bytes | Finding | None]:
        """The artifacts, once no more can be expected in the time that an order waits."""
        limits = {claim: limits_of(context.rules, context.environment).file_bytes for claim in claims}
        self._fetching.keep_recent(IDLE_SECONDS)
        while True:
            found = {claim: self._fetching.look(claim, limit) for claim, limit in limits.items()}
            if not any(self._fetching.expected(claim, ARTIFACT_SECONDS) for claim in claims):
                return found
            self._over.wait(LOOK_SECONDS)

    def _without_artifact(self, claim: Claim) -> Answer:
        if self._fetching.tried(claim):
            return Answer(Kind.DENIED if self._fetching.denied(claim) else Kind.SILENT)
        return Answer(Kind.LATER, "its artifact has not arrived yet")

    def _context(self, order: Order) -> JudgingContext:
        key = (order.run, order.rules_hash, order.trainer)
        with self._lock:
            if key not in self._known:
                self._named[order.run] = order.coordinator
                self._coordinators.keep(self._named)
                authority = Authority(order.chain_id, order.market, order.trainer)
                place = (authority, self._directory, self._sources, self._device)
                self._known[key] = learn_context(self._coordinators, order.run, order.rules_hash, *place)
            return self._known[key]

    def _prefetch(self) -> None:
        """Fetches announced weights, so that orders need not wait for them."""
        while not self._over.wait(PREFETCH_SECONDS):
            try:
                for order in map(decode_order, self._exchange.announced()):
                    self._context(order).weights.prepare(order.version, order.manifest_root)
            except Exception as error:  # an order that needs them reports the problem
                log.debug("not_prefetched", error=str(error))
