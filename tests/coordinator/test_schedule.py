"""What a round allows to be sent, by its state and the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.driver.schedule import BatchingDelays, DueStep, Verb, batch_of, claimed_jobs, step_of
from coordinator.tables import ClaimRow, RoundRow, SeatRow, SubmittedRow
from protocol.chain.structs import State
from protocol.wire.assignments import Leaf, pack_leaves

PATIENCE = BatchingDelays(wait_seconds=5, margin_seconds=10)


def a_round(state: State, **values: object) -> RoundRow:
    fixed = {
        "id": 7,
        "run": 1,
        "state": state,
        "step": 1,
        "policy_version": 0,
        "jobs": 4,
        "slot_count": 3,
        "opened_at": 0,
        "deadline": 100,
        "reveal_seconds": 30,
        "open_block": 1,
        "beacon": bytes(32),
        "assignments": b"",
    }
    return RoundRow(**(fixed | values))


def a_claim(node: int, *jobs: int, at: float = 0.0) -> ClaimRow:
    leaves = pack_leaves([Leaf(job, 1, bytes(32)) for job in jobs])
    return ClaimRow(round=7, node=node, leaves=leaves, beacon=bytes(32), uri="", signature=b"", received_at=at)


def seats(*flags: str) -> list[SeatRow]:
    """ "" for an empty seat, "c" committed, "r" revealed."""
    return [
        SeatRow(round=7, attempt=0, juror=juror, committed=bool(flag), revealed=flag == "r")
        for juror, flag in enumerate(flags)
    ]


@pytest.mark.parametrize(
    ("round_", "jurors", "now", "verb"),
    [
        (a_round(State.OPEN, submitted=0b0111), [], 100, None),
        (a_round(State.OPEN, submitted=0b0111), [], 101, Verb.CLOSE),
        (a_round(State.CLOSED), [], 50, Verb.DRAW),
        (a_round(State.VOTING), seats("c", "c", "c"), 100, None),
        (a_round(State.VOTING, revealing=True), seats("r", "c", "r"), 100, None),
        (a_round(State.VOTING, revealing=True), seats("r", "c", "r"), 101, Verb.TALLY),
        (a_round(State.VOTING, revealing=True), seats("r", "", "r"), 50, Verb.TALLY),
        (a_round(State.VOTING), seats("", "", ""), 101, Verb.TALLY),
        (a_round(State.VOTING), seats("c", "", ""), 110, None),
        (a_round(State.VOTING), seats("c", "", ""), 131, Verb.TALLY),
        (a_round(State.TALLIED), [], 99, None),
        (a_round(State.TALLIED), [], 100, Verb.SETTLE),
        (a_round(State.VOID), [], 50, Verb.FREE),
        (a_round(State.SETTLED), [], 200, None),
        (a_round(State.VOTING, deadline=900), seats("c", "", ""), 500, None),
        (a_round(State.VOTING, deadline=900), seats("c", "", ""), 501, Verb.EXPIRE),
        (a_round(State.TALLIED, deadline=900), [], 501, None),
    ],
)
def test_a_round_moves_on_exactly_when_nothing_is_left_to_wait_for(
    round_: RoundRow, jurors: list[SeatRow], now: int, verb: Verb | None
) -> None:
    rows = [SubmittedRow(round=7, batch=batch, position=0, node=1, leaves=b"", settled=not batch) for batch in (0, 1)]
    step = step_of(round_, jurors, rows, 500, now)
    assert (step.verb if step else None) == verb
    if verb is Verb.SETTLE:
        assert step == DueStep(Verb.SETTLE, 7, batch=1), "the first is settled already"


def test_a_round_without_a_batch_left_ends_with_its_last_appeal() -> None:
    assert step_of(a_round(State.TALLIED, appeals=1), [], [], 500, 100) is None
    finish = step_of(a_round(State.TALLIED), [], [], 500, 100)
    assert finish == DueStep(Verb.FINISH, 7)


def test_claims_wait_for_the_rest_of_their_round() -> None:
    round_ = a_round(State.OPEN)
    early, late = a_claim(1, 0, 1, at=10), a_claim(2, 2, 3, at=12)
    assert batch_of(round_, [early], PATIENCE, 12) == ()
    assert batch_of(round_, [late, early], PATIENCE, 12) == (early, late)
    assert batch_of(round_, [early], PATIENCE, 15) == (early,), "not for ever"
    assert batch_of(round_, [a_claim(1, 0, at=89)], PATIENCE, 91), "nor past the deadline"


def test_what_is_on_chain_counts_towards_a_complete_round() -> None:
    claim = a_claim(2, 2, 3)
    assert batch_of(a_round(State.OPEN, submitted=0b0011), [claim], PATIENCE, 0) == (claim,)


@given(st.lists(st.sets(st.integers(0, 199), min_size=1, max_size=40), max_size=8))
def test_a_batch_never_claims_a_job_twice_nor_more_than_the_contract_takes(sets: list[set[int]]) -> None:
    claims = [a_claim(node, *sorted(jobs), at=float(node)) for node, jobs in enumerate(sets)]
    batch = batch_of(a_round(State.OPEN, jobs=200), claims, BatchingDelays(0, 0), 50)
    seen = 0
    for claim in batch:
        assert not seen & claimed_jobs(claim)
        seen |= claimed_jobs(claim)
    assert seen.bit_count() <= 64
    assert bool(batch) == bool(claims)
