"""Owners whose rewards look steered, in the eyes of one juror: whom to sample, and who is void.

    settled round + rewards published with later versions ──> comparison ──> alarm ──> jobs to sample
    the juror's samples of those jobs ──> condemned: rounds opened later are void for the owner, until it is cleared

Rewards that the trainer publishes may be false; they only decide what is sampled. Own rewards of a sampled round are
those of the artifacts.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rewards import Rewards
from validator.records import rewards as tests
from validator.records.record import RecordPoint, SettledRound
from validator.records.reward_store import RewardStore
from validator.records.rewards import GroupRewards, RoundRewards, SampledGroup

ROUNDS = 512
"""Settled rounds of a run that count: an owner's past is no longer than this."""

REFRESH_SECONDS = 0.05
"""Time that one look at the news of all owners takes."""

_SILENT = np.zeros(len(tests.COMPARED_TILTS))

WAITING = 4096
"""Jobs kept of a run whose rewards were published before their round settled."""

MOST_COMPARED = 512
"""Groups of a round above which jobs are compared instead: the work grows with their square."""


@dataclass(slots=True)
class _RewardedRound:
    """One settled round; ``published`` and ``samples`` are by job, log e-values by owner."""

    settled: SettledRound
    samples: dict[int, tuple[SampledGroup, ...]]
    published: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    compared: dict[str, tests.LogE] = field(default_factory=dict)
    sampled: dict[str, tests.LogE] = field(default_factory=dict)

    def jobs_of(self, owner: str) -> list[int]:
        """Returns the owner's jobs, submitted or not, ascending."""
        return [job for job, of in enumerate(self.settled.listed) if of == owner]

    def unsampled(self, owner: str) -> list[int]:
        """Returns the owner's jobs that the juror has not sampled."""
        return [job for job in self.jobs_of(owner) if job not in self.samples]

    def e_values(self, owner: str) -> RoundRewards:
        """Returns the owner's e-values; silent where it was not compared."""
        compared, sampled = self.compared.get(owner, _SILENT), self.sampled_of(owner)
        if sampled is None:
            return RoundRewards(self.settled.round, compared)
        groups = [group for job in self.jobs_of(owner) for group in self.samples[job] if group.own]
        return RoundRewards(self.settled.round, compared, sampled, tests.honesty(groups), len(groups))

    def sampled_of(self, owner: str) -> tests.LogE | None:
        """Returns the owner's e-values among the juror's samples, None unless all its jobs are sampled."""
        if owner not in self.sampled and not self.unsampled(owner):
            own = [group for job in self.jobs_of(owner) for group in self.samples[job]]
            self.sampled[owner] = tests.sampled(own)
        return self.sampled.get(owner)

    def compare(self, owner: str, groups: int) -> None:
        """Compares the owner's groups with those of others; jobs where there are many. Takes some milliseconds."""
        parts = groups if groups * len(self.settled.listed) <= MOST_COMPARED else 1
        self.compared[owner] = tests.compared(owner, self._groups(owner, parts))

    def _groups(self, owner: str, groups: int) -> Iterator[GroupRewards]:
        """Yields the groups of each job. What was accepted and not trained on is left out, what is missing is not.

        What a missed length takes off may be more than the reward: zero is the least.
        """
        for job, of in enumerate(self.settled.listed):
            if (published_N := self.published.get(job)) is not None:
                for group_G in np.clip(published_N, 0, 1).reshape(groups, -1).tolist():
                    yield GroupRewards(of, "", tuple(group_G))
            elif of == owner and job not in self.settled.accepted:
                yield from [GroupRewards(of, "", ())] * groups


@dataclass(slots=True)
class _RewardedRun:
    """The latest settled rounds of one run under one set of rules.

    asked      jobs that are to be sampled, by owner
    stale      owners for which that has to be found anew, the longest stale first
    published  manifest roots of the versions whose rewards were taken in
    waiting    published rewards of jobs in rounds that have not settled, by round and job
    """

    bound: float
    group_size: int
    groups: int
    rounds: deque[_RewardedRound] = field(default_factory=lambda: deque(maxlen=ROUNDS))
    asked: dict[str, list[tuple[SettledRound, int]]] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    published: set[bytes] = field(default_factory=set)
    waiting: dict[tuple[int, int], NDArray[np.float32]] = field(default_factory=dict)

    def past(self, owner: str, before: float = math.inf) -> list[_RewardedRound]:
        """Returns the owner's rounds that settled before a block, in the order they settled."""
        return [each for each in self.rounds if each.settled.settled_in < before and owner in each.settled.listed]

    def refresh(self, give_up: float) -> None:
        """Finds what is to be sampled for stale owners, the longest stale first, until ``give_up``."""
        while self.stale and time.monotonic() < give_up:
            owner = next(iter(self.stale))
            past = self.past(owner)
            for each in past:
                if owner not in each.compared:
                    each.compare(owner, self.groups)
                    if time.monotonic() > give_up:
                        return
            e_values = [each.e_values(owner) for each in past]
            rounds = {each.settled.round: each for each in past}
            wanted = [rounds[each.round] for each in tests.to_sample(e_values, self.bound)]
            self.asked[owner] = [(each.settled, job) for each in wanted for job in each.unsampled(owner)]
            del self.stale[owner]


class Steering:
    """The evidence on rewards before one juror. Used from one thread."""

    def __init__(self, store: RewardStore) -> None:
        self._store = store
        self._settled: Sequence[SettledRound] = ()
        self._seen = 0
        self._runs: dict[tuple[int, bytes], _RewardedRun] = {}
        self._places: dict[int, _RewardedRound] = {}
        self._turn = 0
        self.begun = 0
        """Counts how often published rewards were forgotten, to be taken in again."""

    @property
    def secret(self) -> bytes:
        """The secret of this juror's noise, 32 bytes."""
        return self._store.secret

    def follow(self, settled: Sequence[SettledRound], judging: Iterable[RecordPoint] = ()) -> None:
        """Takes in the rounds settled so far; another list object means that the chain was reorganised.

        Rounds count of the runs of ``judging``, and of points asked for before.
        """
        if settled is not self._settled:
            self._settled, self._seen = settled, 0
            self._runs = {key: _RewardedRun(run.bound, run.group_size, run.groups) for key, run in self._runs.items()}
            self._places.clear()
            self.begun += 1
        for point in judging:
            self._run(point)
        news, self._seen = self._settled[self._seen :], len(self._settled)
        for each in news:
            self._take_in(each)

    def knows(self, run: int, rules_hash: bytes) -> bool:
        """Returns whether rounds of a run under these rules count, so that published rewards say something."""
        return (run, rules_hash) in self._runs

    def has_published(self, run: int, rules_hash: bytes, root: bytes) -> bool:
        """Returns whether the rewards were taken in that the version with this manifest root came with."""
        return root in self._runs[run, rules_hash].published

    def kept(self, run: int, version: int, root: bytes) -> Rewards | None:
        """Returns the rewards that a version came with, if they are on disk."""
        return self._store.published(run, version, root)

    def publish(self, run: int, rules_hash: bytes, version: int, root: bytes, rewards: Rewards) -> None:
        """Takes in the rewards that a version came with."""
        of = self._runs[run, rules_hash]
        of.published.add(root)
        self._store.keep_published(run, version, root, rewards)
        newest = of.rounds[-1].settled.round if of.rounds else 0
        for each in rewards.jobs:
            judged = self._places.get(each.round)
            if judged is not None and _key(judged.settled) == (run, rules_hash):
                self._place(judged, each.job, each.rewards)
            elif judged is None and each.round > newest - ROUNDS:
                of.waiting[each.round, each.job] = each.rewards
                if len(of.waiting) > WAITING:
                    del of.waiting[min(of.waiting)]

    def to_sample(self) -> list[tuple[SettledRound, int]]:
        """Returns the jobs that the juror has to sample, the newest rounds first.

        It takes ``REFRESH_SECONDS`` and little more, so that much news is looked at in several calls.
        """
        give_up = time.monotonic() + REFRESH_SECONDS
        runs = list(self._runs.values())
        self._turn = (self._turn + 1) % max(1, len(runs))
        for run in runs[self._turn :] + runs[: self._turn]:
            run.refresh(give_up)
        found = [each for run in self._runs.values() for jobs in run.asked.values() for each in jobs]
        return sorted(found, key=lambda each: (-each[0].settled_in, each[0].round, each[1]))

    def learn(self, settled: SettledRound, job: int, groups: Sequence[SampledGroup]) -> None:
        """Takes in the groups of a job that the juror has sampled."""
        self._store.keep_samples(settled.round, settled.beacon, job, groups)
        judged = self._places.get(settled.round)
        if judged is not None and judged.settled.beacon == settled.beacon:
            judged.samples[job] = tuple(groups)
            owner, run = settled.listed[job], self._runs[_key(settled)]
            judged.sampled.pop(owner, None)
            asked = run.asked.get(owner, [])
            run.asked[owner] = [each for each in asked if (each[0].round, each[1]) != (settled.round, job)]
            run.stale.setdefault(owner)

    def findings(self, point: RecordPoint, owners: Collection[str]) -> dict[str, Finding]:
        """Returns a finding for each of ``owners`` that stands condemned at ``point``."""
        run, found = self._run(point), dict[str, Finding]()
        for owner in owners:
            rounds = run.past(owner, point.opened_in)
            past = [each.e_values(owner) for each in rounds]
            if (since := tests.condemned_since(past, run.bound)) is not None:
                reached, detail = tests.evidence_of(past[:since]), "its rewards beside the juror's own samples"
                found[owner] = Finding(Reason.STEERED, detail, None, reached, run.bound)
        return found

    def close(self) -> None:
        """Closes the database."""
        self._store.close()

    def _run(self, point: RecordPoint) -> _RewardedRun:
        key = (point.run, point.rules_hash)
        if key not in self._runs:
            self._runs[key] = _RewardedRun(point.sequential.bound, point.group_size, point.groups_per_job)
            for each in self._settled[: self._seen]:
                if _key(each) == key:
                    self._take_in(each)
        return self._runs[key]

    def _take_in(self, settled: SettledRound) -> None:
        run = self._runs.get(_key(settled))
        if run is None:
            return
        if len(run.rounds) == ROUNDS:
            del self._places[run.rounds[0].settled.round]
        judged = _RewardedRound(settled, self._store.samples(settled.round, settled.beacon))
        run.rounds.append(judged)
        self._places[settled.round] = judged
        for job in range(len(settled.listed)):
            if (rewards_N := run.waiting.pop((settled.round, job), None)) is not None:
                self._place(judged, job, rewards_N)
        run.stale.update(dict.fromkeys(settled.listed))

    def _place(self, judged: _RewardedRound, job: int, rewards_N: NDArray[np.float32]) -> None:
        """Takes in what a trainer says of one job, if it can be so: its file may say anything."""
        settled, run = judged.settled, self._runs[_key(judged.settled)]
        if job < len(settled.listed) and len(rewards_N) == run.groups * run.group_size:
            judged.published[job] = rewards_N
            judged.compared.clear()
            run.stale.update(dict.fromkeys(settled.listed))


def _key(settled: SettledRound) -> tuple[int, bytes]:
    return settled.run, settled.rules_hash
