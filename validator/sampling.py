"""Jobs that a juror samples itself, since their owner's rewards look steered; one at a time, while no vote waits.

rewards published with versions ──> ``Steering``: which jobs ──> weights and artifact fetched, prompts sampled ──┐
                                        └── condemned, or cleared <── own and sampled rewards of each group ─────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import nlargest
from operator import attrgetter
from statistics import fmean

import structlog

from protocol.errors import AssizeError
from protocol.wire.rewards import Rewards
from validator.judging.runs import RunContext
from validator.queue.judged_round import Judge, JudgedRound
from validator.records.record import SettledRound
from validator.records.steering import Steering
from validator.rounds import FollowedRound

KNOWN_VERSIONS = 256
"""Newest versions of a run whose published rewards count, so far as they are on disk."""

FETCHED_VERSIONS = 8
"""Newest versions of a run whose rewards are fetched; sources keep few."""

ATTEMPTS, RETRY_SECONDS = 5, 5.0
"""Attempts to fetch the rewards of a version, and the pause after one that failed."""

SAMPLE_SECONDS = 300.0
"""Longest that one job is tried: then its weights or its artifact are not served any more."""

log = structlog.get_logger()


class Sampling:
    """The samples of one juror. Used from one thread; published rewards are fetched in a thread of its own."""

    def __init__(self, steering: Steering, judge: Judge, clock: Callable[[], float] = time.monotonic) -> None:
        self._steering, self._judge, self._clock = steering, judge, clock
        self._pool = ThreadPoolExecutor(1, "published-rewards")
        self._fetches: dict[bytes, Future[Rewards | None]] = {}
        self._failures: dict[bytes, tuple[int, float]] = {}
        self._tried: dict[tuple[int, bytes, int], float] = {}
        self._last = 0.0

    def learn(self, contexts: Iterable[RunContext], manifest_roots: Mapping[tuple[int, int], bytes]) -> None:
        """Takes in the rewards that the newest versions were published with; starts fetching them."""
        for context in contexts:
            newest = nlargest(KNOWN_VERSIONS, (version for run, version in manifest_roots if run == context.run))
            for place, version in enumerate(newest):
                root = manifest_roots[context.run, version]
                if version and not self._steering.has_published(context.run, root) and place < FETCHED_VERSIONS:
                    self._advance(context, version, root)

    def next(
        self, replayable: Mapping[int, FollowedRound], prepare: Callable[[FollowedRound], JudgedRound | None]
    ) -> JudgedRound | None:
        """Samples the next job, if it can be at once; returns the round of the job that is being tried, if any."""
        began, passed = self._clock(), min(1.0, self._clock() - self._last)
        for settled, job in self._steering.to_sample():
            key, followed = (settled.round, settled.beacon, job), replayable.get(settled.round)
            if followed is None or self._tried.get(key, 0.0) > SAMPLE_SECONDS:
                continue
            if (round_ := prepare(followed)) is None:
                continue
            sampled = self._sample(round_, settled, job)
            self._last = self._clock()
            self._tried[key] = self._tried.get(key, 0.0) + passed + self._last - began
            if sampled:
                del self._tried[key]
            return round_
        self._last = began
        return None

    def close(self) -> None:
        """Ends the fetches."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _sample(self, round_: JudgedRound, settled: SettledRound, job: int) -> bool:
        groups = self._judge.sample(round_, job, self._steering.secret)
        if groups is None:
            return False
        self._steering.learn(settled, job, groups)
        own, drawn = (
            round(fmean(reward for group in groups for reward in rewards_of(group)), 3)
            for rewards_of in (attrgetter("own"), attrgetter("sampled"))
        )
        log.info("sampled", round=settled.round, job=job, own=own, sampled=drawn)
        return True

    def _advance(self, context: RunContext, version: int, root: bytes) -> None:
        failures, again_at = self._failures.get(root, (0, 0.0))
        fetch = self._fetches.get(root)
        if fetch is None:
            if failures < ATTEMPTS and self._clock() >= again_at:
                self._fetches[root] = self._pool.submit(context.weights.published_rewards, version, root)
            return
        if not fetch.done():
            return
        del self._fetches[root]
        try:
            rewards = fetch.result()
        except AssizeError as error:
            self._failures[root] = failures + 1, self._clock() + RETRY_SECONDS
            log.debug("rewards_not_there", run=context.run, version=version, error=str(error))
        else:
            self._steering.publish(context.run, root, rewards or Rewards(()))
