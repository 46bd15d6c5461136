"""What became of a worker's jobs in a round that is over, by the bitmaps on chain, and the day's sum in its file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.structs import Round, RunTerms, State
from worker.earnings import DaysWork, Earnings, RefusedJob, RoundOutcome, outcome_of, refused_jobs, round_line

TERMS = cast(RunTerms, SimpleNamespace(price_per_unit=3, max_units=100))


def ended(state: State = State.SETTLED, **bitmaps: int) -> Round:
    named: dict[str, Any] = {"submitted": 0, "accepted": 0, "fraud": 0} | bitmaps
    return cast(Round, SimpleNamespace(state=state, **named))


def earning(wei: int) -> RoundOutcome:
    return RoundOutcome(accepted=1, fraud=0, void=0, unavailable=0, missing=0, earned=wei)


def test_each_verdict_is_counted_and_only_accepted_work_is_paid() -> None:
    round_ = ended(submitted=0b01111, accepted=0b01001, fraud=0b01010)
    found = outcome_of(round_, 5, {0: 10, 1: 20, 2: 30, 3: 40}, TERMS)
    assert found == RoundOutcome(accepted=1, fraud=1, void=1, unavailable=1, missing=1, earned=30)
    assert found.counts() == dict.fromkeys(("accepted", "fraud", "void", "unavailable", "missing"), 1)


def test_units_beyond_the_runs_most_are_not_paid() -> None:
    assert outcome_of(ended(submitted=1, accepted=1), 1, {0: 1_000}, TERMS).earned == 300


def test_a_void_round_pays_nothing() -> None:
    found = outcome_of(ended(State.VOID, submitted=0b11, accepted=0b11), 2, {0: 10, 1: 20}, TERMS)
    assert (found.counts(), found.earned) == ({"void": 2}, 0)


@given(st.integers(0, 2**8 - 1), st.integers(0, 2**8 - 1), st.integers(0, 2**8 - 1), st.sets(st.integers(0, 7)))
def test_every_job_is_counted_once(submitted: int, accepted: int, fraud: int, signed: set[int]) -> None:
    found = outcome_of(ended(submitted=submitted, accepted=accepted, fraud=fraud), 8, dict.fromkeys(signed, 1), TERMS)
    assert sum(found.counts().values()) == 8


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"day": "2020-01-01", "wei": "7"}', '{"day": 1}', "\x00"])
def test_another_days_sum_or_garbage_starts_at_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "earnings.json").write_text(text)
    earnings = Earnings(tmp_path / "earnings.json")
    assert [earnings.add(earning(5)), earnings.add(earning(2))] == [5, 7]
    assert earnings.today() == DaysWork(7, {"accepted": 2})


def test_the_last_refused_jobs_are_kept_newest_first_and_beside_the_sums(tmp_path: Path) -> None:
    earnings = Earnings(tmp_path / "earnings.json")
    earnings.add(earning(5))
    for job in range(7):
        earnings.refuse(RefusedJob(3, job, "void", 40, 1_700_000_000))
    kept = Earnings(tmp_path / "earnings.json").today()
    assert [one.job for one in kept.refused] == [6, 5, 4, 3, 2]
    assert (kept.wei, kept.jobs) == (5, {"accepted": 1})


def test_refused_jobs_are_named_with_their_verdicts() -> None:
    round_ = ended(submitted=0b1111, accepted=0b1001, fraud=0b1010)
    assert refused_jobs(round_, dict.fromkeys(range(4), 1)) == [(1, "fraud"), (2, "void"), (3, "unavailable")]
    assert refused_jobs(ended(State.VOID), {2: 1}) == [(2, "void round")]


def test_a_round_is_one_line_at_a_terminal() -> None:
    event = {"event": "round_ended", "round": 97, "jobs": 6, "seconds": 4.812, "accepted": 6}
    money = {"earned": "6.172345 ASZ", "today": "24.7 ASZ"}
    assert round_line(event | money) == "round 97  6 jobs  4.8 s  accepted 6  +6.17 ASZ  today 24.70"
    refused = {"round": 98, "jobs": 2, "void": 1, "missing": 1, "earned": "0 ASZ", "today": "24.7 ASZ"}
    assert round_line(refused) == "round 98  2 jobs  void 1 missing 1  +0.00 ASZ  today 24.70"
