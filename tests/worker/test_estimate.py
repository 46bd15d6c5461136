"""An estimate from measured speed and seen rounds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from worker.estimate import Electricity, SeenRound, Speed, estimate, share_of

FAST = Speed(tokens_per_second=1000.0, jobs_per_second=10.0, units_per_job=50.0, batches=4, spread=0.02)
ROUNDS = [SeenRound(jobs=4, counted=8, accepted=8, opened_at=60 * number) for number in range(41)]


FREE = Electricity()


def of(speed: Speed = FAST, rounds: list[SeenRound] = ROUNDS, costs: Electricity = FREE) -> tuple[int, int, int]:
    found = estimate(speed, rounds, price_wei=7, max_units=100, work_seconds=60, costs=costs)
    return found.low_wei, found.expected_wei, found.high_wei


def test_it_is_jobs_times_units_times_price_times_rounds() -> None:
    low, expected, high = of()
    assert expected == 4 * 50 * 7 * 60
    assert (low, high) == (round(0.95 * expected), round(1.05 * expected))


def test_a_slow_machine_limits_the_jobs_and_adds_its_spread() -> None:
    _, expected, high = of(replace(FAST, jobs_per_second=1 / 30, spread=0.1))
    assert expected == 2 * 50 * 7 * 60
    assert (high - expected) / expected == 0.2


def test_rounds_that_overlap_share_one_machine() -> None:
    slow = replace(FAST, jobs_per_second=1 / 30)
    often = [replace(each, opened_at=20 * number) for number, each in enumerate(ROUNDS)]  # three at a time
    _, expected, _ = of(slow, often)
    assert expected == 120 * 50 * 7  # what it makes in an hour, however many rounds there are


def test_an_uneven_pace_of_rounds_widens_the_interval() -> None:
    bursts = [replace(each, opened_at=each.opened_at // 120 * 120) for each in ROUNDS]
    assert of(rounds=bursts) == of(), "the rounds of a burst belong together"
    faster = [
        replace(each, opened_at=80 * min(number, 20) + 40 * max(number - 20, 0)) for number, each in enumerate(ROUNDS)
    ]
    low, expected, high = of(rounds=faster)
    assert expected == of()[1]
    assert high - low > 1.5 * (of()[2] - of()[0])


def test_a_job_is_paid_up_to_the_most_units_and_refused_ones_are_not() -> None:
    assert of(replace(FAST, units_per_job=1000.0))[1] == 2 * of()[1]
    half = [replace(each, accepted=4) for each in ROUNDS]
    assert of(rounds=half)[1] == of()[1] // 2


def test_electricity_is_taken_off() -> None:
    assert of(costs=Electricity(watts=500, kwh_wei=1000))[1] == of()[1] - 500
    assert of(costs=Electricity(watts=500, kwh_wei=10**9))[2] < 0


@given(st.integers(1, 256), st.integers(1, 64), st.integers(0, 500))
def test_a_share_is_at_most_the_capacity_and_the_jobs(jobs: int, capacity: int, others: int) -> None:
    assert 0 < share_of(jobs, capacity, others) <= min(jobs, capacity)
