"""How far ahead rounds are opened, simulated against a trainer that keeps to the staleness rule."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.driver.pacing import (
    STARVED_SECONDS,
    PacingLimits,
    RunProgress,
    all_judged,
    end_reason,
    funding_shortfall,
    in_flight,
    rounds_ahead,
    starvation,
)
from coordinator.tables import RoundRow
from protocol.chain.structs import State


def a_round(number: int, state: State, version: int, accepted: int, consumed: int) -> RoundRow:
    return RoundRow(id=number, state=state, policy_version=version, accepted=accepted, consumed=consumed)


def changed(round_: RoundRow, **columns: int) -> RoundRow:
    return round_.model_copy(update=columns)


RUN = RunProgress(run=1, version=0, closed=False, opened=0, escrow=100, need=100)


@given(st.integers(0, 4), st.lists(st.sampled_from(["judge", "train", "void"]), max_size=60))
def test_nothing_goes_stale_while_the_trainer_takes_rounds_in_order(level: int, turns: list[str]) -> None:
    rounds: list[RoundRow] = []
    version = 0
    for turn in turns:
        while in_flight(rounds, version, level) < rounds_ahead(
            replace(RUN, version=version), PacingLimits(level, None, None)
        ):
            rounds.append(a_round(len(rounds), State.OPEN, version, 0, 0))
        open_ = [each for each in rounds if each.state == State.OPEN]
        ready = [each for each in rounds if each.state == State.TALLIED and not each.consumed]
        if turn == "judge" and open_:
            rounds[open_[0].id] = changed(open_[0], state=State.TALLIED, accepted=1)
        if turn == "void" and open_:
            rounds[open_[0].id] = changed(open_[0], state=State.VOID)
        if turn == "train" and ready:
            assert version - ready[0].policy_version <= level
            rounds[ready[0].id] = changed(ready[0], consumed=1)
            version += 1


def test_a_round_is_in_flight_until_consumed_passed_over_void_stale_or_barren() -> None:
    waiting = a_round(3, State.SETTLED, 5, 1, 0)
    assert in_flight([waiting], 5, 2) == 1
    assert in_flight([changed(waiting, consumed=1)], 5, 2) == 0
    assert in_flight([changed(waiting, accepted=0)], 5, 2) == 0
    assert in_flight([changed(waiting, fraud=waiting.accepted)], 5, 2) == 0, "nothing could be read"
    assert in_flight([changed(waiting, state=State.VOID)], 5, 2) == 0
    assert in_flight([waiting], 8, 2) == 0
    later = a_round(4, State.TALLIED, 5, 1, 1)
    assert in_flight([waiting, later], 6, 2) == 0
    assert in_flight([changed(waiting, state=State.VOTING), later], 6, 2) == 1, "still being judged"


def test_near_the_end_there_is_a_round_for_each_version_to_come_and_the_one_a_step_may_wait_for() -> None:
    assert rounds_ahead(replace(RUN, version=9), PacingLimits(2, None, 10)) == 2
    assert rounds_ahead(replace(RUN, version=3), PacingLimits(2, None, 10)) == 3


def test_a_trainer_that_makes_nothing_of_what_was_judged_gets_more_but_not_without_end() -> None:
    idle = STARVED_SECONDS + 1
    assert rounds_ahead(RUN, PacingLimits(2, None, None), idle) == 6
    assert rounds_ahead(replace(RUN, version=9), PacingLimits(2, None, 10), idle) == 6
    assert rounds_ahead(RUN, PacingLimits(2, None, None), STARVED_SECONDS) == 3


def test_a_trainer_for_which_that_is_too_little_gets_one_more_each_time_it_has_waited_twice_as_long() -> None:
    allowed = [rounds_ahead(RUN, PacingLimits(2, None, None), idle) for idle in (11, 19, 21, 41, 81)]
    assert allowed == [6, 6, 7, 8, 9]
    a_night = rounds_ahead(RUN, PacingLimits(2, None, None), 8 * 3600)
    assert a_night <= 18, "a trainer that is down for a night costs a few rounds"


def test_a_trainer_whose_steps_take_long_is_not_starved_while_it_makes_one() -> None:
    limits, step = PacingLimits(2, None, None), 300.0
    assert rounds_ahead(RUN, limits, step, patience=2 * step) == 3
    assert starvation(step, 3, patience=2 * step) == ""
    assert rounds_ahead(RUN, limits, 2 * step + 1, patience=2 * step) == 6


def test_judged_rounds_that_wait_for_their_trainer_are_told_of() -> None:
    assert starvation(STARVED_SECONDS, 6) == ""
    assert starvation(STARVED_SECONDS + 1, 0) == ""
    assert "no version of 6 judged rounds" in starvation(STARVED_SECONDS + 1, 6)


def test_nobody_is_working_once_each_round_has_its_verdict() -> None:
    judged = a_round(3, State.TALLIED, 5, 1, 0)
    assert all_judged([judged, changed(judged, state=State.SETTLED)])
    assert not all_judged([judged, changed(judged, state=State.VOTING)])


def test_a_run_ends_when_closed_or_where_it_was_told_to() -> None:
    assert end_reason(RUN, PacingLimits(2, None, None)) is None
    assert end_reason(replace(RUN, closed=True), PacingLimits(2, None, None)) == "run 1 is closed"
    assert end_reason(replace(RUN, version=10), PacingLimits(2, None, 10)) == "done: version 10 is published"
    assert end_reason(replace(RUN, opened=4), PacingLimits(2, 4, None)) == "done: 4 rounds were opened"


def test_an_unfunded_run_says_what_is_missing_and_how_to_mend_it() -> None:
    assert funding_shortfall(RUN) is None
    sentence = str(funding_shortfall(replace(RUN, escrow=40)))
    assert "run unfunded" in sentence
    assert "`assize run fund 1 60`" in sentence
