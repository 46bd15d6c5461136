"""The judge with a queue: orders judgements from background workers, collects them, and repeats lost orders.

    job   ── order ──> queued ── a worker takes it ──> leased ──> answered
                         └─ the queue is empty: Redis lost it ─┐  ├─ the lease expired: the worker was killed
                                    ordered again <────────────┴──┴─ silent, later, failed

Whatever is lost, here or in Redis, is ordered again; the juror abstains if answers come too late. Lost orders are
detected from Redis alone, so a restarted daemon continues where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from prometheus_client import Gauge

from protocol.errors import Rejected, Unavailable
from validator.judging.claims import Claim
from validator.judging.judge import Judgement
from validator.judging.runs import RunContext
from validator.queue.exchange import Exchange, Look
from validator.queue.judged_round import ATTEMPTS, JudgedRound
from validator.queue.orders import Answer, Kind, Order
from validator.records.rewards import SampledGroup
from validator.rounds import FollowedRound

JOBS_PER_ORDER = 4
"""Enough jobs for an efficient prefill, few enough to spread over workers."""
GRACE_SECONDS = 2.0
"""Time after which an order that is neither queued nor leased counts as lost, and a silent store is asked again."""
RESAMPLE_SECONDS = 15.0
"""Pause after which a job that was not sampled is ordered again."""
WORKERS_LOST = 5
"""Workers lost at one job after which its round counts as impossible to judge."""
RETRY_SECONDS = 1.0
ANNOUNCE_SECONDS = 10.0

QUEUED = Gauge("assize_validator_queued_orders", "Orders that wait in the queue for background workers")

log = structlog.get_logger()


@dataclass(slots=True)
class _Ordered:
    """State of one ordered job; ``again_at`` is when it may be ordered again (monotonic seconds)."""

    round: int
    again_at: float
    running: bool = False
    silent: bool = False
    denied: bool = False
    answered: bool = False
    losses: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    """A job without a judgement."""

    round_: JudgedRound
    order: Order
    claim: Claim


class QueuedJudge:
    """Spreads a juror's judging over background workers. ``send`` queues one order, or raises ``Unavailable``."""

    def __init__(
        self,
        exchange: Exchange,
        send: Callable[[str], None],
        juror: int,
        jobs_per_order: int = JOBS_PER_ORDER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exchange, self._send, self._jobs_per_order, self._clock = exchange, send, jobs_per_order, clock
        self._juror = juror
        self._ordered: dict[str, _Ordered] = {}
        self._sampling: dict[str, float] = {}
        self._announced: dict[int, tuple[bytes, float]] = {}
        self._down_until, self._problem = 0.0, ""

    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Collects answers and orders jobs that are new or were lost; returns whether an answer came."""
        jobs = {key: job for round_ in rounds if not round_.progress.impossible for key, job in self._jobs(round_)}
        if not jobs or self._clock() < self._down_until:
            return False
        try:
            look = self._exchange.look(list(jobs))
            QUEUED.set(look.queued)
            self._collect(jobs, look)
            self._order(
                {key: job for key, job in jobs.items() if key not in look.answers and self._due(key, job, look)}
            )
        except Unavailable as error:
            self._rest(error)
            return False
        self._problem = ""
        return bool(look.answers)

    def all_silent(self, round_: JudgedRound, late: bool) -> bool:
        """See ``Judge``. A job without any answer yet is not missing: the workers are late."""
        jobs = dict(self._jobs(round_))
        silent = {key for key in jobs if key in self._ordered and self._ordered[key].silent}
        nodes = {jobs[key].claim.node for key in silent} if late else set()
        return all(key in silent or job.claim.node in nodes for key, job in jobs.items())

    def denied(self, round_: JudgedRound) -> bool:
        """See ``Judge``."""
        return all(key in self._ordered and self._ordered[key].denied for key, _ in self._jobs(round_))

    def sample(self, round_: JudgedRound, job: int, secret: bytes, most: float) -> list[SampledGroup] | None:
        """See ``Judge``. One order a job, in a queue of its own, since orders to judge go first.

        One that nobody is at after a while is sent again; a worker passes over what was answered meanwhile.
        """
        order = self._empty_order(round_.context, round_.followed.policy_version, round_.manifest_root)
        claim = round_.claim_or_missing(job)
        order = order.model_copy(update={"secret": secret, "claims": (claim,)})
        (key,) = order.keys
        if self._clock() < self._down_until:
            return None
        try:
            look = self._exchange.look([key])
            answer = None if key not in look.answers else _decoded(look.answers[key])
            if answer is not None and answer.kind is Kind.SAMPLED:
                return list(answer.groups)
            if answer is not None:
                log.info("not_sampled", round=claim.round, job=job, why=answer.kind.value, detail=answer.detail)
                self._exchange.forget([key])
                self._sampling[key] = self._clock() + RESAMPLE_SECONDS
            elif key not in look.leased and self._clock() >= self._sampling.get(key, 0.0) and not look.queued:
                self._send(order.model_dump_json())
                self._sampling[key] = self._clock() + RESAMPLE_SECONDS
        except Unavailable as error:
            self._rest(error)
        return None

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets the orders of other rounds."""
        kept = {followed.judged_round for followed in rounds}
        now = self._clock()
        self._sampling = {key: again_at for key, again_at in self._sampling.items() if again_at > now}
        self._ordered = {key: ordered for key, ordered in self._ordered.items() if ordered.round in kept}

    def close(self) -> None:
        """Closes the connection to the queue; orders remain in it."""
        self._exchange.close()

    def announce(self, context: RunContext, version: int, manifest_root: bytes) -> None:
        """Tells the workers which weights will be needed soon."""
        now, said = self._clock(), self._announced.get(context.run)
        if now < self._down_until or (said is not None and said[0] == manifest_root and now < said[1]):
            return
        try:
            order = self._empty_order(context, version, manifest_root)
            self._exchange.announce(context.run, order.model_dump_json())
        except Unavailable as error:
            self._rest(error)
        else:
            self._announced[context.run] = (manifest_root, now + ANNOUNCE_SECONDS)

    def _collect(self, jobs: Mapping[str, _Job], look: Look) -> None:
        broken: dict[int, JudgedRound] = {}
        for key, data in look.answers.items():
            job, answer = jobs[key], _read(jobs[key], data)
            ordered = self._ordered.setdefault(key, _Ordered(job.claim.round, 0.0))
            ordered.again_at, ordered.answered, ordered.running = self._clock() + GRACE_SECONDS, True, False
            ordered.silent = answer.kind in (Kind.SILENT, Kind.DENIED)
            ordered.denied = ordered.denied or answer.kind is Kind.DENIED
            if answer.evidence is not None:
                job.round_.record(Judgement(job.claim, answer.evidence, answer.rows))
            elif answer.kind is Kind.FAILED:
                broken[id(job.round_)] = job.round_
                log.error("judging_failed", round=job.claim.round, job=job.claim.job, error=answer.detail)
        for round_ in broken.values():
            round_.progress.failures += 1
        unjudged = [
            key for key, job in jobs.items() if key in look.answers and job.claim.job not in job.round_.progress.judged
        ]
        if unjudged:
            self._exchange.forget(unjudged)

    def _due(self, key: str, job: _Job, look: Look) -> bool:
        """Returns whether to order a job without an answer: it is new, was lost, or is to be tried again."""
        ordered = self._ordered.get(key)
        if key in look.leased:
            self._ordered.setdefault(key, _Ordered(job.claim.round, 0.0)).running = True
            return False
        if ordered is None:
            return True
        if ordered.running:
            self._lose(ordered, job)
            return not job.round_.progress.impossible
        return self._clock() >= ordered.again_at and (ordered.answered or look.queued == 0)

    def _lose(self, ordered: _Ordered, job: _Job) -> None:
        """Counts workers that died at a job, so that a job that kills workers is not repeated forever."""
        ordered.losses += 1
        log.warning("worker_lost", round=job.claim.round, job=job.claim.job, losses=ordered.losses)
        if ordered.losses >= WORKERS_LOST:
            job.round_.progress.failures = ATTEMPTS

    def _order(self, due: Mapping[str, _Job]) -> None:
        groups: dict[str, list[tuple[str, _Job]]] = {}
        for key, job in due.items():
            groups.setdefault(job.order.model_dump_json(), []).append((key, job))
        for group in groups.values():
            for start in range(0, len(group), self._jobs_per_order):
                part = group[start : start + self._jobs_per_order]
                claims = tuple(job.claim for _, job in part)
                self._send(part[0][1].order.model_copy(update={"claims": claims}).model_dump_json())
                for key, job in part:
                    before = self._ordered.get(key) or _Ordered(job.claim.round, 0.0)
                    again_at = self._clock() + GRACE_SECONDS
                    self._ordered[key] = replace(before, again_at=again_at, running=False, answered=False)

    def _jobs(self, round_: JudgedRound) -> Iterator[tuple[str, _Job]]:
        """The round's jobs without a judgement, by the keys of their answers."""
        order = self._empty_order(round_.context, round_.followed.policy_version, round_.manifest_root)
        for claim in round_.waiting:
            yield order.key(claim), _Job(round_, order, claim)

    def _empty_order(self, context: RunContext, version: int, manifest_root: bytes) -> Order:
        """Returns an order without claims."""
        return Order(
            run=context.run,
            version=version,
            manifest_root=manifest_root,
            rules_hash=context.rules_hash,
            chain_id=context.chain_id,
            market=context.authority.market,
            trainer=context.authority.trainer,
            juror=self._juror,
            coordinator=context.coordinator,
        )

    def _rest(self, error: Unavailable) -> None:
        """Pauses requests to Redis, and logs each problem once."""
        self._down_until = self._clock() + RETRY_SECONDS
        if str(error) != self._problem:
            log.warning("queue_not_there", error=str(error))
        self._problem = str(error)


def _decoded(data: bytes) -> Answer:
    try:
        return Answer.decode(data)
    except Rejected as error:
        return Answer(Kind.FAILED, str(error))


def _read(job: _Job, data: bytes) -> Answer:
    """Reads an answer; an invalid one, or one of another job, counts as a failure to judge."""
    answer = _decoded(data)
    found = answer.evidence
    if found is not None and (found.job, found.node, found.root) != (job.claim.job, job.claim.node, job.claim.root):
        return Answer(Kind.FAILED, "the queue holds another job's answer")
    return answer
