"""Rewards among owners raise an alarm, and a juror's own samples condemn, each within its budget."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.power import BOUND, Market, play
from validator.records.rewards import (
    ALARM_ROUNDS,
    CLEARING_ROUNDS,
    SAMPLED_TILTS,
    GroupRewards,
    RoundRewards,
    SampledGroup,
    compared,
    condemned_since,
    evidence_after,
    honesty,
    log_e_values,
    sampled,
    to_sample,
)

REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=4)
QUIET, LOUD = np.full(4, -0.5), np.full(4, 6.0)


def means(owner: str, *values: float | None) -> list[GroupRewards]:
    return [GroupRewards(owner, "sums", () if value is None else (value,)) for value in values]


@given(REWARDS, REWARDS)
def test_the_e_values_of_all_ways_to_deal_the_pool_average_to_one(own: list[float], others: list[float]) -> None:
    pool = own + others
    dealt = [
        log_e_values(
            [pool[place] for place in places],
            [value for place, value in enumerate(pool) if place not in places],
            SAMPLED_TILTS,
        )
        for places in combinations(range(len(pool)), len(own))
    ]
    np.testing.assert_allclose(np.exp(dealt).mean(axis=0), 1.0)


@given(REWARDS, REWARDS, st.integers(0, 3), st.floats(0, 1))
def test_an_owner_that_lowers_its_own_rewards_never_raises_its_evidence(
    own: list[float], others: list[float], place: int, share: float
) -> None:
    lower = list(own)
    lower[place % len(own)] *= share
    assert (log_e_values(lower, others, SAMPLED_TILTS) <= log_e_values(own, others, SAMPLED_TILTS) + 1e-9).all()


def test_equal_rewards_and_an_owner_alone_say_nothing() -> None:
    assert not compared("a", means("a", 0.5, 0.5) + means("b", 0.5)).any()
    assert not compared("a", means("a", 0.1, 0.9)).any()
    assert sampled([SampledGroup((1.0, 1.0), (1.0, 1.0))]) == pytest.approx(np.zeros(4))


def test_sources_are_compared_apart() -> None:
    easy = [GroupRewards(owner, "easy", (1.0,)) for owner in "ab"]
    hard = [GroupRewards("b", "hard", (0.0,)) for _ in range(9)]
    assert not compared("a", easy + hard).any()


def test_a_missing_group_counts_as_zero_for_its_owner_and_not_at_all_for_others() -> None:
    others = means("b", 0.2, 0.4, 0.6)
    np.testing.assert_array_equal(
        compared("a", means("a", 0.9, None) + others), compared("a", means("a", 0.9, 0) + others)
    )
    np.testing.assert_array_equal(
        compared("a", means("a", 0.9) + others + means("c", None)), compared("a", means("a", 0.9) + others)
    )


def test_earlier_honest_work_does_not_offset_a_cheat() -> None:
    fresh, late = evidence_after([LOUD, LOUD]), evidence_after([QUIET] * 500 + [LOUD, LOUD])
    assert late[-1] >= fresh[-1]


def test_evidence_starts_anew_after_a_round_that_was_not_sampled() -> None:
    assert evidence_after([LOUD, None, LOUD]) == [6.0, -math.inf, 6.0]


@given(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), max_size=12))
def test_choosing_which_rounds_to_sample_never_raises_the_evidence(rounds: list[tuple[float, bool]]) -> None:
    every = evidence_after(np.full(4, value) for value, _ in rounds)
    chosen = evidence_after(np.full(4, value) if taken else None for value, taken in rounds)
    assert all(some <= most + 1e-9 for some, most in zip(chosen, every, strict=True))


def test_an_alarm_asks_for_the_rounds_behind_it_that_are_not_sampled_newest_first() -> None:
    past = [RoundRewards(number, QUIET) for number in range(5)]
    assert to_sample(past, BOUND) == []
    past += [RoundRewards(5, LOUD), RoundRewards(6, LOUD, sampled=QUIET), RoundRewards(7, LOUD)]
    assert [each.round for each in to_sample(past, BOUND)] == [7, 5]


def test_an_alarm_outlasts_evidence_that_wavers_and_ends_with_it() -> None:
    loud = [RoundRewards(0, LOUD), RoundRewards(1, LOUD)]
    assert to_sample([*loud, *(RoundRewards(number, QUIET) for number in range(2, 14))], BOUND)
    assert not to_sample([*loud, *(RoundRewards(number, QUIET) for number in range(2, 18))], BOUND)


def test_the_comparison_alone_condemns_nobody() -> None:
    assert condemned_since([RoundRewards(number, LOUD) for number in range(100)], 0.1) is None
    assert condemned_since([RoundRewards(number, QUIET, sampled=LOUD) for number in range(9)], BOUND) == 5


def test_whoever_is_condemned_is_sampled_in_every_round_until_honest_work_clears_it() -> None:
    past = [RoundRewards(number, QUIET, sampled=LOUD) for number in range(5)]
    past += [RoundRewards(number, QUIET) for number in (5, 6)]
    assert condemned_since(past, BOUND) == 5
    assert [each.round for each in to_sample(past, BOUND)] == [6, 5]
    needed = math.ceil(math.log(CLEARING_ROUNDS) / 0.5)
    honest = [RoundRewards(number, QUIET, sampled=QUIET, honesty=0.5, present=8) for number in range(7, 7 + needed)]
    assert condemned_since(past + honest[:-1], BOUND) == 5
    assert condemned_since(past + honest, BOUND) is None
    assert to_sample(past + honest, BOUND) == []
    assert condemned_since([*past, *honest, RoundRewards(99, QUIET, sampled=LOUD)], BOUND) is None, "it begins anew"


def test_an_owner_that_steers_on_is_not_cleared_by_rounds_that_were_not_sampled() -> None:
    past = [RoundRewards(number, QUIET, sampled=LOUD) for number in range(5)]
    past += [RoundRewards(number, QUIET) for number in range(5, 500)]
    past += [RoundRewards(number, QUIET, sampled=LOUD, honesty=-1.0) for number in range(500, 600)]
    assert condemned_since(past, BOUND) == 5


def test_neither_missing_jobs_nor_doing_worse_on_purpose_clears_sooner_than_honest_work() -> None:
    missing, worse = SampledGroup((), (1.0,) * 16), SampledGroup((0.0,) * 8, (1.0,) * 16)
    assert honesty([missing] * 99) == 0.0
    assert sampled([missing]) == pytest.approx(sampled([worse])), "for what it is charged with, it has nothing to show"
    past = [RoundRewards(number, QUIET, sampled=LOUD) for number in range(5)]
    past += [RoundRewards(5, QUIET, QUIET, honesty([worse] * 60), 60)]
    assert condemned_since(past, BOUND) == 5
    past += [RoundRewards(6, QUIET, QUIET, honesty([worse] * 4), 4)]
    assert condemned_since(past, BOUND) is None
    rng = np.random.default_rng(3)
    chances = rng.beta(1.4, 0.9, 4000)
    fair = [
        SampledGroup(tuple(rng.binomial(1, p, 8).astype(float)), tuple(rng.binomial(1, p, 16).astype(float)))
        for p in chances
    ]
    jobs = np.array([honesty(fair[start : start + 4]) for start in range(0, len(fair), 4)])
    assert 10 < math.log(CLEARING_ROUNDS) / jobs.mean() < 60
    steered = [SampledGroup(group.own, group.own + (0.0,) * 8) for group in fair]
    assert honesty(steered) < 0


def test_honest_owners_of_unequal_shares_stay_within_both_budgets() -> None:
    rounds, played = 40, [play(Market(shares=(1, 2, 3, 8)), seed, 40, every_round=True) for seed in range(15)]
    evidence = np.array([[owner.compared, owner.sampled] for market in played for owner in market])
    for budget in (0.5, 0.1):
        crossed = (evidence.max(axis=2) >= math.log(rounds / budget)).mean(axis=0)
        assert (crossed <= budget).all()


def test_a_cheat_is_alarmed_and_then_condemned() -> None:
    market = play(Market(shares=(2,) * 10, cheats=1, uplift=0.2), 1, 120)
    assert max(market[0].compared) >= math.log(ALARM_ROUNDS)
    assert max(market[0].sampled) >= BOUND
    assert not any(max(owner.sampled, default=-math.inf) >= BOUND for owner in market[1:])


def test_cheats_that_do_worse_make_honest_owners_look_steered_and_condemn_none() -> None:
    market = play(Market(shares=(1,) * 10, cheats=6, uplift=-0.3), 2, 80)
    honest = market[6:]
    assert any(max(owner.compared) >= math.log(ALARM_ROUNDS) for owner in honest)
    assert all(max(owner.sampled, default=-math.inf) < BOUND / 2 for owner in market)
