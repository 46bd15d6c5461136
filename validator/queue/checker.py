"""The background worker's side of an order: leases the jobs, fetches artifacts and weights, judges, answers.

Failures of the worker itself never count against a node: such jobs are answered as failed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from protocol.errors import Unavailable
from protocol.transport.blobs import BlobStores
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.shardcast import Authority
from protocol.wire.evidence import Finding
from protocol.wire.pins import UnfitCheckpoint
from validator.judging.claims import Claim
from validator.judging.fetching import fetch_once
from validator.judging.judge import FetchedJob, judge, judge_unfit, limits_of
from validator.judging.runs import JudgingContext, learn_context
from validator.queue.exchange import Exchange
from validator.queue.orders import Answer, Kind, Order, decode_order

WEIGHTS_SECONDS = 120.0
"""Time that an order waits for its weights before it is answered as later."""
PREFETCH_SECONDS = 2.0
PARALLEL_FETCHES = 8

log = structlog.get_logger()


class Checker:
    """Judges orders in a background worker. ``take`` is called by one thread at a time."""

    def __init__(
        self,
        exchange: Exchange,
        client: CoordinatorClient,
        directory: Path,
        sources: tuple[str, ...] = (),
        device: str = "cpu",
        stores: BlobStores | None = None,
    ) -> None:
        self._exchange, self._client, self._directory = exchange, client, directory
        self._sources, self._device, self._stores = sources, device, stores or BlobStores()
        self._known: dict[tuple[int, bytes, str], JudgingContext] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(PARALLEL_FETCHES, "artifacts")
        self._over = threading.Event()
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
            return self._judge(order, claims)
        except UnfitCheckpoint as error:
            return [Answer(Kind.JUDGED, evidence=one.evidence) for one in judge_unfit(claims, error)]
        except Unavailable as error:
            log.warning("put_off", run=order.run, version=order.version, error=str(error))
            return [Answer(Kind.LATER, str(error))] * len(claims)
        except Exception as error:
            log.error("judging_failed", run=order.run, error=repr(error), exc_info=True)
            return [Answer(Kind.FAILED, repr(error))] * len(claims)

    def close(self) -> None:
        """Ends the fetches and closes the connections."""
        self._over.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for context in self._known.values():
            context.weights.close()
        self._stores.close()
        self._client.close()
        self._exchange.close()

    def _judge(self, order: Order, claims: Sequence[Claim]) -> list[Answer]:
        context, version = self._context(order), (order.version, order.manifest_root)
        context.weights.prepare(*version)
        fetched = list(self._pool.map(functools.partial(self._fetch, context), claims))
        ready = [FetchedJob(claim, data) for claim, data in zip(claims, fetched, strict=True) if data is not None]
        if (refusal := context.weights.refusal(*version)) is not None:
            raise refusal
        if not ready:
            return [Answer(Kind.SILENT)] * len(claims)
        policy = context.weights.wait_for(*version, WEIGHTS_SECONDS)
        judgements = judge(policy, context.rules, context.environment, ready, order.juror)
        log.info("checked", run=order.run, version=order.version, jobs=len(judgements))
        judged = {one.claim: Answer(Kind.JUDGED, evidence=one.evidence, rows=one.rows) for one in judgements}
        return [judged.get(claim, Answer(Kind.SILENT)) for claim in claims]

    def _fetch(self, context: JudgingContext, claim: Claim) -> bytes | Finding | None:
        return fetch_once(self._stores, claim, limits_of(context.rules, context.environment, claim).file_bytes)

    def _context(self, order: Order) -> JudgingContext:
        key = (order.run, order.rules_hash, order.trainer)
        with self._lock:
            if key not in self._known:
                authority = Authority(order.chain_id, order.market, order.trainer)
                self._known[key] = learn_context(
                    self._client, order.run, order.rules_hash, authority, self._directory, self._sources, self._device
                )
            return self._known[key]

    def _prefetch(self) -> None:
        """Fetches announced weights, so that orders need not wait for them."""
        while not self._over.wait(PREFETCH_SECONDS):
            try:
                for order in map(decode_order, self._exchange.announced()):
                    self._context(order).weights.prepare(order.version, order.manifest_root)
            except Exception as error:  # an order that needs them reports the problem
                log.debug("not_prefetched", error=str(error))
