"""Findings become the most serious reason, reasons become a vote."""

from __future__ import annotations

import pytest

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.votes import reasons_of
from validator.judging.verdict import ranking, reason_of, vote_of

RANKED = [reason for reason in ranking() if reason in set(Reason)]


def test_every_reason_but_acceptance_and_abstention_is_ranked_and_has_a_sentence() -> None:
    assert set(RANKED) == set(Reason) - {Reason.ACCEPTED, Reason.ABSTAIN}
    assert len(RANKED) == len(set(RANKED))
    assert all(reason.sentence for reason in Reason)


def test_fraud_outranks_everything() -> None:
    fraud = {reason for reason in Reason if reason.fraud}
    assert fraud == {Reason.WRONG_PROMPT, Reason.DUPLICATE, Reason.SAMPLING_FRAUD, Reason.SEQUENCE}
    assert set(RANKED[: len(fraud)]) == fraud


@pytest.mark.parametrize("reason", RANKED)
def test_the_most_serious_reason_wins(reason: Reason) -> None:
    less = RANKED[RANKED.index(reason) :]
    assert reason_of([Finding(other, "") for other in reversed(less)]) is reason


def test_no_finding_is_acceptance() -> None:
    assert reason_of([]) is Reason.ACCEPTED


def test_a_vote_says_what_was_found() -> None:
    reasons = {0: Reason.ACCEPTED, 2: Reason.SAMPLING_FRAUD, 5: Reason.UNITS, 9: Reason.ACCEPTED}
    vote = vote_of(reasons, b"\x01" * 32)
    assert (vote.accept, vote.fraud) == (1 << 0 | 1 << 9, 1 << 2)
    assert reasons_of(vote, 1 << 0 | 1 << 2 | 1 << 5 | 1 << 9) == reasons


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.WRONG_ROOT])
def test_bytes_that_nobody_could_read_are_voted_unavailable_by_both_bits(reason: Reason) -> None:
    vote = vote_of({0: Reason.ACCEPTED, 3: reason}, b"\x01" * 32)
    assert not vote.abstains
    assert (vote.accept, vote.fraud, vote.reasons) == (0b1001, 0b1000, bytes([reason]))
    assert reasons_of(vote, 0b1001) == {0: Reason.ACCEPTED, 3: reason}


def test_one_job_that_could_not_be_judged_makes_an_abstention() -> None:
    assert vote_of({0: Reason.ACCEPTED, 1: Reason.ABSTAIN}, bytes(32)).abstains
