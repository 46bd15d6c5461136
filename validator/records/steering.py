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
"""Jobs kept whose rewards were published before their round settled."""


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

    def sampled_of(self, owner: str) -> tests.LogE | None:
        """Returns the owner's e-values among the juror's samples, None unless all its jobs are sampled."""
        if owner not in self.sampled and not self.unsampled(owner):
            own = [group for job in self.jobs_of(owner) for group in self.samples[job]]
            self.sampled[owner] = tests.sampled(own)
        return self.sampled.get(owner)

    def compare(self, owner: str, group_size: int, groups: int) -> None:
        """Compares the owner's groups with those of others. May take some milliseconds."""
        self.compared[owner] = tests.compared(owner, self._groups(owner, group_size, groups))

    def _groups(self, owner: str, group_size: int, groups: int) -> Iterator[GroupRewards]:
        """Yields the groups of each job. What was accepted and not trained on is left out, what is missing is not.

        What a missed length takes off may be more than the reward: zero is the least.
        """
        for job, of in enumerate(self.settled.listed):
            if (published_N := self.published.get(job)) is not None:
                for group_G in np.clip(published_N, 0, 1).reshape(groups, group_size).tolist():
                    yield GroupRewards(of, "", tuple(group_G))
            elif of == owner and job not in self.settled.accepted:
                yield from [GroupRewards(of, "", ())] * groups


@dataclass(slots=True)
class _RewardedRun:
    """The latest settled rounds of one run under one set of rules.

    asked   jobs that are to be sampled, by owner
    stale   owners for which that has to be found anew
    """

    bound: float
    group_size: int
    groups: int
    rounds: deque[_RewardedRound] = field(default_factory=lambda: deque(maxlen=ROUNDS))
    asked: dict[str, list[tuple[SettledRound, int]]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)

    def past(self, owner: str, before: float = math.inf) -> list[_RewardedRound]:
        """Returns the owner's rounds that settled before a block, in the order they settled."""
        return [each for each in self.rounds if each.settled.settled_in < before and owner in each.settled.listed]

    def refresh(self, give_up: float) -> None:
        """Finds what is to be sampled for stale owners, as many as there is time for until ``give_up``."""
        for owner in sorted(self.stale):
            past = self.past(owner)
            for each in past:
                if owner not in each.compared:
                    each.compare(owner, self.group_size, self.groups)
                    if time.monotonic() > give_up:
                        return
            e_values = [RoundRewards(each.settled.round, each.compared[owner], each.sampled_of(owner)) for each in past]
            rounds = {each.settled.round: each for each in past}
            wanted = [rounds[each.round] for each in tests.to_sample(e_values, self.bound)]
            self.asked[owner] = [(each.settled, job) for each in wanted for job in each.unsampled(owner)]
            self.stale.discard(owner)


class Steering:
    """The evidence on rewards before one juror. Used from one thread."""

    def __init__(self, store: RewardStore) -> None:
        self._store = store
        self._settled: Sequence[SettledRound] = ()
        self._seen = 0
        self._runs: dict[tuple[int, bytes], _RewardedRun] = {}
        self._places: dict[int, _RewardedRound] = {}
        self._published: set[bytes] = set()
        self._absent: set[bytes] = set()
        self._waiting: dict[tuple[int, int, int], NDArray[np.float32]] = {}

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
            self._published.clear()
        for point in judging:
            self._run(point)
        news, self._seen = self._settled[self._seen :], len(self._settled)
        for each in news:
            self._take_in(each)

    def has_published(self, run: int, root: bytes) -> bool:
        """Returns whether the rewards are known that the version of ``run`` with this manifest root came with."""
        if root not in self._published | self._absent:
            kept = self._store.published(root)
            if kept is None:
                self._absent.add(root)
            else:
                self._take_up(run, root, kept)
        return root in self._published

    def publish(self, run: int, root: bytes, rewards: Rewards) -> None:
        """Takes in the rewards that a version came with."""
        self._store.keep_published(root, rewards)
        self._take_up(run, root, rewards)

    def to_sample(self) -> list[tuple[SettledRound, int]]:
        """Returns the jobs that the juror has to sample, the newest rounds first.

        It takes ``REFRESH_SECONDS`` and little more, so that much news is looked at in several calls.
        """
        give_up = time.monotonic() + REFRESH_SECONDS
        for run in self._runs.values():
            run.refresh(give_up)
        found = [each for run in self._runs.values() for jobs in run.asked.values() for each in jobs]
        return sorted(found, key=lambda each: (-each[0].settled_in, each[0].round, each[1]))

    def learn(self, settled: SettledRound, job: int, groups: Sequence[SampledGroup]) -> None:
        """Takes in the groups of a job that the juror has sampled."""
        self._store.keep_samples(settled.round, settled.beacon, job, groups)
        judged = self._places.get(settled.round)
        if judged is not None and judged.settled.beacon == settled.beacon:
            judged.samples[job] = tuple(groups)
            judged.sampled.pop(settled.listed[job], None)
            self._runs[_key(settled)].stale.add(settled.listed[job])

    def findings(self, point: RecordPoint, owners: Collection[str]) -> dict[str, Finding]:
        """Returns a finding for each of ``owners`` that stands condemned at ``point``."""
        run, found = self._run(point), dict[str, Finding]()
        for owner in owners:
            rounds = run.past(owner, point.opened_in)
            past = [RoundRewards(each.settled.round, _SILENT, each.sampled_of(owner)) for each in rounds]
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
            self._published.clear()  # read again, for the rounds that count from now on
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
            if (rewards_N := self._waiting.pop((settled.run, settled.round, job), None)) is not None:
                self._place(judged, job, rewards_N)
        run.stale.update(settled.listed)

    def _take_up(self, run: int, root: bytes, rewards: Rewards) -> None:
        self._published.add(root)
        for each in rewards.jobs:
            judged = self._places.get(each.round)
            if judged is None:
                self._waiting[run, each.round, each.job] = each.rewards
                if len(self._waiting) > WAITING:
                    del self._waiting[next(iter(self._waiting))]
            elif judged.settled.run == run:
                self._place(judged, each.job, each.rewards)

    def _place(self, judged: _RewardedRound, job: int, rewards_N: NDArray[np.float32]) -> None:
        """Takes in what a trainer says of one job, if it can be so: its file may say anything."""
        settled, run = judged.settled, self._runs[_key(judged.settled)]
        if job < len(settled.listed) and len(rewards_N) == run.groups * run.group_size:
            judged.published[job] = rewards_N
            judged.compared.clear()
            run.stale.update(settled.listed)


def _key(settled: SettledRound) -> tuple[int, bytes]:
    return settled.run, settled.rules_hash
