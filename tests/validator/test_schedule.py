"""What a juror does follows from the round and the clock alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.chain.events import (
    AppealOpened,
    CommitteeDrawn,
    CommitteeRedrawn,
    Event,
    Log,
    NodeRegistered,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    RunOpened,
    Submitted,
    TermsAnnounced,
    VoteCommitted,
    VoteRevealed,
)
from protocol.chain.structs import Role, RunTerms, Verdict
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from validator.rounds import FollowedRound, Rounds
from validator.schedule import Step, must_decide, next_step, overdue_step

ME, OTHER = 4, 5
TERMS = RunTerms("", "", b"", 1, 1, 1, 3, 5, 600, 600, 600, 600, 60)
RUN = RunOpened(1, "", TERMS, b"", "")
WORKER = NodeRegistered(9, "owner", "key", Role.WORKER, 0, 2, 1, 0)
OPENED = RoundOpened(1, 1, 0, 0, 2, 3, 0, 100, pack_assignments([Listing(9, 2)]))
LEAVES = pack_leaves([Leaf(0, 10, b"\x01" * 32), Leaf(1, 10, b"\x02" * 32)])
SUBMITTED = Submitted(1, 9, 0, b"\x0b" * 32, LEAVES, "http://a/", b"")
CLOSED = RoundClosed(1, 0b11, 110)
DRAWN = CommitteeDrawn(1, 0, 5, b"", (ME, OTHER), 120)
COMMITTED = VoteCommitted(1, ME, 0, b"")
REVEALING = RevealStarted(1, 0, 130)
REVEALED = VoteRevealed(1, ME, 0, 3, 0, b"", b"", b"")


def folded(*events: Event) -> Rounds:
    rounds = Rounds()
    rounds.fold([Log(0, b"", b"", place, 80, event) for place, event in enumerate((RUN, WORKER))])
    rounds.fold([Log(n, b"\x0b" * 32, b"", 0, 90 + n, event) for n, event in enumerate(events)])
    return rounds


def followed(*events: Event) -> FollowedRound:
    return folded(*events).live[1]


@pytest.mark.parametrize(
    ("events", "certain", "now", "expected"),
    [
        ((OPENED,), False, 95, Step.NOTHING),
        ((OPENED,), True, 95, Step.PREPARE),
        ((OPENED, SUBMITTED, CLOSED), True, 95, Step.PREPARE),
        ((OPENED, SUBMITTED, CLOSED, DRAWN), False, 115, Step.COMMIT),
        ((OPENED, SUBMITTED, CLOSED, DRAWN), False, 121, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED), False, 115, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED), False, 121, Step.REVEAL),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED), False, 721, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED, REVEALING), False, 121, Step.REVEAL),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED, REVEALING), False, 131, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED, REVEALING, REVEALED), False, 121, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, REVEALING), False, 121, Step.NOTHING),
        ((OPENED, SUBMITTED, CLOSED, DRAWN, RoundTallied(1, 0, 3, 0, 140)), False, 121, Step.NOTHING),
    ],
)
def test_next_step(events: tuple[Event, ...], certain: bool, now: float, expected: Step) -> None:
    assert next_step(followed(*events), ME, certain, now) is expected


def test_whoever_was_not_drawn_has_no_duty() -> None:
    assert next_step(followed(OPENED, SUBMITTED, CLOSED, DRAWN), 6, True, 115) is Step.NOTHING


def test_a_redraw_begins_anew() -> None:
    events: list[Any] = [OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED, CommitteeRedrawn(1, 1, 150)]
    assert next_step(followed(*events), ME, False, 140) is Step.NOTHING
    again = followed(*events, CommitteeDrawn(1, 1, 9, b"", (ME,), 170))
    assert next_step(again, ME, False, 160) is Step.COMMIT
    assert again.attempt == 1


def test_steps_that_anyone_may_take() -> None:
    assert overdue_step(followed(OPENED, SUBMITTED), 95) is Step.NOTHING
    assert overdue_step(followed(OPENED, SUBMITTED, CLOSED), 105) is Step.DRAW
    drawn = (OPENED, SUBMITTED, CLOSED, DRAWN)
    assert overdue_step(followed(*drawn), 115) is Step.NOTHING
    assert overdue_step(followed(*drawn), 121) is Step.TALLY, "nobody committed in time"
    assert overdue_step(followed(*drawn, COMMITTED), 720) is Step.NOTHING, "who committed may reveal yet"
    assert overdue_step(followed(*drawn, COMMITTED), 721) is Step.TALLY
    revealing = (OPENED, SUBMITTED, CLOSED, DRAWN, COMMITTED, REVEALING)
    assert overdue_step(followed(*revealing), 125) is Step.NOTHING
    assert overdue_step(followed(*revealing, REVEALED), 125) is Step.TALLY
    assert overdue_step(followed(*revealing), 131) is Step.TALLY


def test_only_near_the_deadline_must_be_decided() -> None:
    drawn = followed(OPENED, SUBMITTED, CLOSED, DRAWN)
    assert not must_decide(drawn, 116, 3)
    assert must_decide(drawn, 117.5, 3)


def test_a_root_claimed_twice_is_marked_the_second_time() -> None:
    second = Submitted(1, 9, 1, b"", pack_leaves([Leaf(1, 10, b"\x01" * 32)]), "http://a/", b"")
    rounds = folded(OPENED, Submitted(1, 9, 0, b"", pack_leaves([Leaf(0, 10, b"\x01" * 32)]), "", b""), second)
    assert rounds.live[1].copied == {1}


def test_leaves_in_any_order_are_read() -> None:
    swapped = LEAVES[41:] + LEAVES[:41]
    rounds = folded(OPENED, Submitted(1, 9, 0, b"", swapped, "", b""))
    assert sorted(rounds.live[1].leaves) == [0, 1]


def test_an_appeal_is_a_trial_of_one_job_under_its_own_number_with_its_rounds_beacon() -> None:
    tallied = (OPENED, SUBMITTED, CLOSED, DRAWN, RoundTallied(1, 0, 1, 2, 140))
    opened = AppealOpened(2, 1, "", 1, Verdict.FRAUD, 9, 10, 5, 150)
    rounds = folded(*tallied, opened)
    trial = rounds.live[2]
    assert trial.appeal
    assert (trial.number, trial.judged_round, trial.beacon, trial.submitted_jobs) == (2, 1, rounds.live[1].beacon, (1,))
    assert next_step(trial, 6, trial.certain(6), 141) is Step.PREPARE, "as many seats as there are others"
    assert not trial.certain(ME), "who sat before is not drawn"
    assert overdue_step(trial, 141) is Step.DRAW
    drawn = folded(*tallied, opened, CommitteeDrawn(2, 0, 9, b"", (6, 7, 8), 170))
    assert next_step(drawn.live[2], 6, False, 160) is Step.COMMIT
    assert next_step(drawn.live[1], ME, False, 160) is Step.NOTHING
    assert set(folded(*tallied, opened, RoundVoided(2, 0)).live) == {1}, "the round waits for no undecided appeal"


def test_a_round_keeps_the_terms_it_was_opened_with() -> None:
    later = replace(TERMS, rules_hash=b"\x07" * 32, committee=1)
    rounds = folded(TermsAnnounced(1, "", later, 91), OPENED, replace(OPENED, round=2))
    assert rounds.live[2].terms == later
    early = folded(TermsAnnounced(1, "", later, 92), OPENED, replace(OPENED, round=2))
    assert [early.live[number].terms for number in (1, 2)] == [TERMS, later]


def test_a_round_that_ended_is_forgotten() -> None:
    assert folded(OPENED, SUBMITTED, CLOSED, RoundSettled(1, 0)).live == {}
