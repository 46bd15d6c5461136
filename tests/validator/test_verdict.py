"""Findings become the most serious reason, reasons become a vote."""

from __future__ import annotations

import pytest

from protocol.wire.evidence import Finding
from protocol.wire.reasons import FRAUD, SENTENCES, Reason
from protocol.wire.votes import reasons_of
from validator.judging.verdict import SEVERITY, reason_of, vote_of


def test_every_reason_but_acceptance_and_abstention_is_ranked_and_has_a_sentence() -> None:
    assert set(SEVERITY) == set(Reason) - {Reason.ACCEPTED, Reason.ABSTAIN}
    assert set(SENTENCES) == set(Reason)


def test_fraud_outranks_everything() -> None:
    assert set(SEVERITY[: len(FRAUD)]) == FRAUD


@pytest.mark.parametrize("reason", SEVERITY)
def test_the_most_serious_reason_wins(reason: Reason) -> None:
    less = SEVERITY[SEVERITY.index(reason) :]
    assert reason_of([Finding(other, "") for other in reversed(less)]) is reason


def test_no_finding_is_acceptance() -> None:
    assert reason_of([]) is Reason.ACCEPTED


def test_a_vote_says_what_was_found() -> None:
    reasons = {0: Reason.ACCEPTED, 2: Reason.SAMPLING_FRAUD, 5: Reason.UNITS, 9: Reason.ACCEPTED}
    vote = vote_of(reasons, b"\x01" * 32)
    assert (vote.accept, vote.fraud) == (1 << 0 | 1 << 9, 1 << 2)
    assert reasons_of(vote, 1 << 0 | 1 << 2 | 1 << 5 | 1 << 9) == reasons


def test_what_cannot_be_fetched_is_void_at_first_and_decides_nothing_on_appeal() -> None:
    reasons = {3: Reason.UNAVAILABLE}
    assert not vote_of(reasons, b"\x01" * 32).abstains
    assert vote_of(reasons, b"\x01" * 32, appeal=True).abstains


def test_one_job_that_could_not_be_judged_makes_an_abstention() -> None:
    assert vote_of({0: Reason.ACCEPTED, 1: Reason.ABSTAIN}, bytes(32)).abstains
