"""Whom a juror samples and whom it finds void, from settled rounds, published rewards and its own samples."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.broadcast.version_store import VersionStore
from protocol.chain.structs import State
from protocol.wire.pins import REWARDS_FILE
from protocol.wire.reasons import Reason
from protocol.wire.rewards import JobRewards, Rewards
from protocol.wire.rules import Sequential
from tests.validator.scene import Scene
from validator.records.record import RecordPoint, SettledRound
from validator.records.reward_store import RewardStore
from validator.records.rewards import SampledGroup
from validator.records.steering import ROUNDS, Steering

RULES_HASH, GROUPS, SIZE = b"\x02" * 32, 2, 4
SEQUENTIAL = Sequential(sigma=1.0, false_alarm=0.01, horizon_jobs=100)
OWNERS = ("0xcheat",) * 2 + ("0xhonest",) * 6
STEERED, FAIR = [SampledGroup((1.0,) * SIZE, (0.0,) * 8)] * GROUPS, [SampledGroup((0.0,) * SIZE, (1.0,) * 8)] * GROUPS


def point(block: int = 1 << 40) -> RecordPoint:
    return RecordPoint(1, RULES_HASH, block, SEQUENTIAL, GROUPS, SIZE)


def settled(number: int, missing: Sequence[int] = (), beacon: bytes = bytes(32)) -> SettledRound:
    """A round of eight jobs, two of them the cheat's, that settled in the block of its number."""
    there = {job: owner for job, owner in enumerate(OWNERS) if job not in missing}
    return SettledRound(
        number, beacon, 1, RULES_HASH, 0, number, (), {}, there, frozenset(), 0, OWNERS, frozenset(there)
    )


def rewards_of(
    number: int, missing: Sequence[int] = (), cheat: float = 1.0, size: int = GROUPS * SIZE
) -> list[JobRewards]:
    return [
        JobRewards(number, job, np.full(size, cheat if owner == OWNERS[0] else 0.25, np.float32))
        for job, owner in enumerate(OWNERS)
        if job not in missing
    ]


def published(*rounds: list[JobRewards]) -> Rewards:
    return Rewards(tuple(job for jobs in rounds for job in jobs))


def asked_by(steering: Steering) -> list[tuple[SettledRound, int]]:
    """What is to be sampled once all news has been looked at."""
    for _ in range(100):
        steering.to_sample()
    return steering.to_sample()


@pytest.fixture
def steering(tmp_path: Path) -> Iterator[Steering]:
    with closing(Steering(RewardStore(tmp_path))) as made:
        yield made


def test_rewards_published_with_a_version_have_the_owners_jobs_sampled_and_condemn_nobody(steering: Steering) -> None:
    rounds = [settled(number) for number in range(1, 31)]
    steering.follow(rounds, [point()])
    assert asked_by(steering) == []
    steering.publish(1, RULES_HASH, 1, b"root", published(*(rewards_of(each.round) for each in rounds)))
    asked = asked_by(steering)
    assert {settled.listed[job] for settled, job in asked} == {"0xcheat"}
    assert [settled.round for settled, _ in asked[:4]] == [30, 30, 29, 29], "the newest first, every job of the owner"
    assert steering.findings(point(), {"0xcheat", "0xhonest"}) == {}


def test_samples_condemn_in_rounds_opened_later_until_honest_work_clears(steering: Steering) -> None:
    rounds = [settled(number) for number in range(1, 100)]
    steering.follow(rounds, [point()])
    for each in rounds[:9]:
        for job in (0, 1):
            steering.learn(each, job, STEERED)
    assert steering.findings(point(1), {"0xcheat"}) == {}, "nothing had settled when that round opened"
    finding = steering.findings(point(10), {"0xcheat", "0xhonest"})["0xcheat"]
    assert finding.reason is Reason.STEERED
    assert not finding.reason.fraud
    assert finding.observed >= finding.limit == SEQUENTIAL.bound
    assert len(asked_by(steering)) == 2 * len(rounds[9:]), "every round since then"
    for each in rounds[9:]:
        for job in (0, 1):
            steering.learn(each, job, FAIR)
    assert steering.findings(point(), {"0xcheat"}) == {}
    assert asked_by(steering) == []


def test_a_job_that_was_sampled_is_not_handed_out_again_however_much_news_there_is(steering: Steering) -> None:
    rounds = [settled(number) for number in range(1, 31)]
    steering.follow(rounds, [point()])
    steering.publish(1, RULES_HASH, 1, b"root", published(*(rewards_of(each.round) for each in rounds)))
    asked_by(steering)
    handed = set()
    while asked := steering.to_sample():
        each, job = asked[0]
        assert (each.round, job) not in handed
        handed.add((each.round, job))
        steering.publish(1, RULES_HASH, 1, b"again", published(rewards_of(each.round)))  # all its owners are news again
        steering.learn(each, job, FAIR)
    assert handed


def test_a_missing_job_is_sampled_too_and_lowers_what_the_owner_seems_to_have(steering: Steering) -> None:
    rounds = [settled(number, missing=[1]) for number in range(1, 61)]
    steering.follow(rounds, [point()])
    steering.publish(
        1, RULES_HASH, 1, b"root", published(*(rewards_of(each.round, missing=[1], cheat=0.4) for each in rounds))
    )
    assert asked_by(steering) == [], "0.4 and nothing are less than 0.25 twice"
    steering.publish(
        1, RULES_HASH, 1, b"more", published(*(rewards_of(each.round, missing=[1], cheat=1.0) for each in rounds))
    )
    assert {job for _, job in asked_by(steering)} == {0, 1}


@pytest.mark.parametrize(("run", "size"), [(2, GROUPS * SIZE), (1, GROUPS * SIZE - 1), (1, 100_000)])
def test_a_file_of_another_run_or_of_another_shape_says_nothing(steering: Steering, run: int, size: int) -> None:
    rounds = [settled(number) for number in range(1, 31)]
    steering.follow(rounds, [point(), replace(point(), run=2)])
    steering.publish(run, RULES_HASH, 1, b"root", published(*(rewards_of(each.round, size=size) for each in rounds)))
    assert asked_by(steering) == []


def test_rewards_that_come_before_their_round_settles_are_kept_for_it(steering: Steering) -> None:
    rounds = [settled(number) for number in range(1, 31)]
    growing: list[SettledRound] = []
    steering.follow(growing, [point()])
    steering.publish(1, RULES_HASH, 1, b"root", published(*(rewards_of(each.round) for each in rounds)))
    growing += rounds
    steering.follow(growing)
    assert asked_by(steering)


def test_a_restart_and_a_reorganisation_find_files_samples_and_the_secret_again(tmp_path: Path) -> None:
    rounds = [settled(number) for number in range(1, 31)]
    with closing(Steering(RewardStore(tmp_path))) as first:
        first.follow(rounds, [point()])
        first.publish(1, RULES_HASH, 1, b"root", published(*(rewards_of(each.round) for each in rounds)))
        for each in rounds[-9:]:
            for job in (0, 1):
                first.learn(each, job, STEERED)
        asked, found, secret = asked_by(first), first.findings(point(), {"0xcheat"}), first.secret
    with closing(Steering(RewardStore(tmp_path))) as again:
        again.follow(rounds, [point()])
        kept = again.kept(1, 1, b"root")
        assert kept is not None
        assert again.kept(1, 1, b"other") is None
        assert again.kept(2, 1, b"root") is None, "another run's version may have the same root"
        again.publish(1, RULES_HASH, 1, b"root", kept)
        assert (asked_by(again), again.findings(point(), {"0xcheat"}), again.secret) == (asked, found, secret)
        elsewhere = [settled(each.round, beacon=b"\x01" * 32) for each in rounds]
        again.follow(elsewhere)
        assert again.findings(point(), {"0xcheat"}) == {}, "samples of a round that was reorganised away"


def test_an_owners_past_is_bounded(steering: Steering) -> None:
    rounds = [settled(number) for number in range(1, ROUNDS + 20)]
    steering.follow(rounds, [point()])
    for each in rounds[:9]:
        for job in (0, 1):
            steering.learn(each, job, STEERED)
    assert steering.findings(point(), {"0xcheat"}) == {}


def test_rewards_published_with_a_version_reach_every_juror(
    make_scene: Callable[..., Scene], origin: tuple[VersionStore, str], model_directory: Path, tmp_path: Path
) -> None:
    scene, next_version = make_scene(), tmp_path / "version-1"
    shutil.copytree(model_directory, next_version)
    told = Rewards((JobRewards(1, 0, np.full(16, 0.5, np.float32)),))
    (next_version / REWARDS_FILE).write_bytes(told.canonical)
    scene.publish(1, next_version, origin[0])
    opened = scene.open(1)  # its run is known to jurors who judge a round of it
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    give_up = time.monotonic() + 30
    while not all(juror.validator._history.steering.kept(scene.run, 1, scene.manifest_root) for juror in scene.jurors):
        assert time.monotonic() < give_up
        scene.tick()
    for juror in scene.jurors:
        with closing(RewardStore(juror.directory)) as store:
            kept = store.published(scene.run, 1, scene.manifest_root)
        assert kept is not None
        assert kept.canonical == told.canonical
