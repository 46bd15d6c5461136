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

from protocol.wire.rewards import Rewards
from validator.judging.runs import RunContext
from validator.queue.judged_round import Judge, JudgedRound
from validator.records.record import SettledRound
from validator.records.reward_store import KEPT_VERSIONS
from validator.records.steering import Steering
from validator.rounds import FollowedRound

FETCHED_VERSIONS = 8
"""Newest versions of a run whose rewards are fetched; sources keep few."""

LOOK_SECONDS = 0.05
"""Time after which a look at what is on disk is continued at the next tick."""

ATTEMPTS, RETRY_SECONDS = 5, 5.0
"""Attempts to fetch the rewards of a version, and the pause after one that failed."""

SAMPLE_SECONDS = 300.0
"""Longest that one job is tried: then its weights or its artifact are not served any more."""

TRIED_AT_ONCE = 8
"""Jobs that are tried side by side, so that one that is not served holds up no other."""

MOST_REMEMBERED = 4096
"""Jobs and versions that are remembered as tried."""

log = structlog.get_logger()


_Version = tuple[int, bytes, int, bytes]
"""Run, rules hash, version and manifest root."""


class Sampling:
    """The samples of one juror. Used from one thread; published rewards are fetched in a thread of its own."""

    def __init__(self, steering: Steering, judge: Judge, clock: Callable[[], float] = time.monotonic) -> None:
        self._steering, self._judge, self._clock = steering, judge, clock
        self._pool = ThreadPoolExecutor(1, "published-rewards")
        self._fetches: dict[_Version, Future[Rewards | None]] = {}
        self._failures: dict[_Version, tuple[int, float]] = {}
        self._looked: set[_Version] = set()
        self._begun = 0
        self._tried: dict[tuple[int, bytes, int], float] = {}
        self._last = 0.0

    def learn(self, contexts: Iterable[RunContext], manifest_roots: Mapping[tuple[int, int], bytes]) -> None:
        """Takes in the rewards that the newest versions were published with; starts fetching them."""
        give_up = self._clock() + LOOK_SECONDS
        if self._begun != self._steering.begun:
            self._begun = self._steering.begun
            self._looked.clear()
        for context in contexts:
            if not self._steering.knows(context.run, context.rules_hash):
                continue
            newest = nlargest(KEPT_VERSIONS, (version for run, version in manifest_roots if run == context.run))
            for place, version in enumerate(each for each in newest if each):
                named = context.run, context.rules_hash, version, manifest_roots[context.run, version]
                if self._steering.has_published(named[0], named[1], named[3]) or self._clock() > give_up:
                    continue
                if named not in self._looked:
                    self._look(named)
                elif place < FETCHED_VERSIONS:
                    self._advance(context, named)

    def next(
        self,
        replayable: Mapping[int, FollowedRound],
        prepare: Callable[[FollowedRound], JudgedRound | None],
        most: float,
    ) -> list[JudgedRound]:
        """Samples the next job that can be at once, for at most so many seconds; returns the rounds of all it tried."""
        began, passed = self._clock(), min(1.0, self._clock() - self._last)
        tried: list[JudgedRound] = []
        for settled, job in self._steering.to_sample():
            key, followed = (settled.round, settled.beacon, job), replayable.get(settled.round)
            if followed is None or self._tried.get(key, 0.0) > SAMPLE_SECONDS:
                continue
            if (round_ := prepare(followed)) is None:
                continue
            tried.append(round_)
            started = self._clock()
            sampled = self._sample(round_, settled, job, most)
            self._tried[key] = self._tried.get(key, 0.0) + passed + self._clock() - started
            if sampled:
                del self._tried[key]
            if self._clock() - began > LOOK_SECONDS or len(tried) == TRIED_AT_ONCE:
                break
        self._last = self._clock()
        for kept in (self._tried, self._failures):
            while len(kept) > MOST_REMEMBERED:
                del kept[next(iter(kept))]  # type: ignore[arg-type]
        return tried

    def close(self) -> None:
        """Ends the fetches."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _sample(self, round_: JudgedRound, settled: SettledRound, job: int, most: float) -> bool:
        groups = self._judge.sample(round_, job, self._steering.secret, most)
        if groups is None:
            return False
        self._steering.learn(settled, job, groups)
        own, drawn = (
            round(fmean([reward for group in groups for reward in rewards_of(group)] or [0.0]), 3)
            for rewards_of in (attrgetter("own"), attrgetter("sampled"))
        )
        log.info("sampled", round=settled.round, job=job, own=own, sampled=drawn)
        return True

    def _look(self, named: _Version) -> None:
        """Takes in what is on disk."""
        run, rules_hash, version, root = named
        self._looked.add(named)
        if (kept := self._steering.kept(run, version, root)) is not None:
            self._steering.publish(run, rules_hash, version, root, kept)

    def _advance(self, context: RunContext, named: _Version) -> None:
        run, rules_hash, version, root = named
        failures, again_at = self._failures.get(named, (0, 0.0))
        fetch = self._fetches.get(named)
        if fetch is None:
            if failures < ATTEMPTS and self._clock() >= again_at:
                self._fetches[named] = self._pool.submit(context.weights.published_rewards, version, root)
            return
        if not fetch.done():
            return
        del self._fetches[named]
        if (error := fetch.exception()) is None:
            self._steering.publish(run, rules_hash, version, root, fetch.result() or Rewards(()))
        else:  # bytes of a stranger, and this disk: neither may end the daemon
            self._failures[named] = failures + 1, self._clock() + RETRY_SECONDS
            log.debug("rewards_not_there", run=run, version=version, error=str(error))
