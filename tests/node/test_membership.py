"""What remains to be done for a membership follows from what is there, wherever an earlier attempt ended."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.node.membership import (
    GAS,
    Foothold,
    JoinStep,
    Membership,
    gas_needed,
    jobs_expected,
    refuse_unpayable,
    remaining_steps,
    tokens_missing,
    usual_capacity,
)

TOKEN = 10**18
WANTED = Membership(run=1, capacity=8, bond=16 * TOKEN, margin=2 * TOKEN, key_gas=TOKEN // 50)
NOTHING = Foothold(0, 0, False, 0, 0, 0, gives_gas=True, gives_tokens=True)


def after(step: JoinStep, held: Foothold) -> Foothold:
    """What is there once a step is taken, as the contracts have it."""
    missing = tokens_missing(WANTED, held)
    given = {name: getattr(held, name) for name in Foothold.__slots__}
    match step:
        case JoinStep.TAKE_GAS:
            given |= {"owner_gas": TOKEN, "key_gas": TOKEN}
        case JoinStep.TAKE_TOKENS:
            given["tokens"] = missing
        case JoinStep.REGISTER:
            given |= {"node": 7, "bond": WANTED.bond, "tokens": held.tokens - WANTED.bond}
        case JoinStep.DEPOSIT:
            given |= {"bond": held.bond + missing, "tokens": held.tokens - missing}
        case JoinStep.SEND_GAS:
            given |= {"key_gas": held.key_gas + WANTED.key_gas, "owner_gas": held.owner_gas - WANTED.key_gas}
        case JoinStep.JOIN_RUN:
            given["joined"] = True
    return Foothold(**given)


footholds = st.builds(
    lambda node, bond, joined, *rest: Foothold(7 if node else 0, bond if node else 0, node and joined, *rest),
    st.booleans(),
    st.integers(0, 20 * TOKEN),
    st.booleans(),
    st.integers(0, 40 * TOKEN),
    st.integers(0, TOKEN),
    st.integers(0, TOKEN // 20),
    st.booleans(),
    st.booleans(),
)


@given(footholds)
def test_ended_after_any_step_the_rest_remains_and_no_step_is_taken_twice(held: Foothold) -> None:
    steps = remaining_steps(WANTED, held)
    assert len(set(steps)) == len(steps)
    for step, others in zip(steps, (steps[count:] for count in itertools.count(1)), strict=False):
        if (held := after(step, held)).tokens < 0:
            return  # one that cannot pay: refused before
        assert remaining_steps(WANTED, held) == others
    assert remaining_steps(WANTED, held) == ()
    assert held.bond >= WANTED.bond + WANTED.margin


def test_from_nothing_on_a_local_chain_both_keys_get_gas_and_the_owner_tokens() -> None:
    assert remaining_steps(WANTED, NOTHING) == (
        *(JoinStep.TAKE_GAS, JoinStep.TAKE_TOKENS, JoinStep.REGISTER, JoinStep.DEPOSIT, JoinStep.JOIN_RUN),
    )


def test_elsewhere_the_owner_pays_for_all_and_lends_the_session_key_its_gas() -> None:
    held = Foothold(0, 0, False, 20 * TOKEN, TOKEN, 0, gives_gas=False, gives_tokens=False)
    steps = remaining_steps(WANTED, held)
    assert steps == (JoinStep.REGISTER, JoinStep.DEPOSIT, JoinStep.SEND_GAS, JoinStep.JOIN_RUN)
    assert gas_needed(steps, WANTED, 10) == WANTED.key_gas + 10 * sum(GAS[step] for step in steps)
    refuse_unpayable(steps, WANTED, held, 10, "0xabc")


@pytest.mark.parametrize(
    ("tokens", "gas", "sentence"),
    [
        (17, TOKEN, r"too few tokens: 0xabc has 17 ASZ, bond and margin need 18 ASZ; send it the rest"),
        (18, 1, r"too little gas: 0xabc has 0.0000\d+ coin, this needs up to 0.02\d+ coin; send it coin"),
    ],
)
def test_an_owner_that_cannot_pay_is_told_the_numbers_before_anything_is_sent(
    tokens: int, gas: int, sentence: str
) -> None:
    held = Foothold(0, 0, False, tokens * TOKEN, gas, 0, gives_gas=False, gives_tokens=False)
    with pytest.raises(Rejected, match=sentence):
        refuse_unpayable(remaining_steps(WANTED, held), WANTED, held, 10**9, "0xabc")


def test_a_slashed_bond_is_filled_up_and_not_paid_again() -> None:
    held = Foothold(7, 15 * TOKEN, True, 10 * TOKEN, TOKEN, TOKEN, gives_gas=False, gives_tokens=False)
    assert remaining_steps(WANTED, held) == (JoinStep.DEPOSIT,)
    assert tokens_missing(WANTED, held) == 3 * TOKEN


def test_while_its_node_waits_for_a_slot_nothing_is_paid_and_no_rules_are_consented_to() -> None:
    held = Foothold(7, 15 * TOKEN, False, 0, TOKEN, TOKEN, gives_gas=False, gives_tokens=False, waits=True)
    assert (remaining_steps(WANTED, held), tokens_missing(WANTED, held)) == ((), 0)
    refuse_unpayable((), WANTED, held, 10**9, "0xabc")


@given(st.integers(0, 10_000), st.integers(2, 256))
def test_the_capacity_offered_is_the_least_to_which_a_job_falls_in_each_round(others: int, jobs: int) -> None:
    offered = usual_capacity(others, jobs)
    assert jobs_expected(offered, others, jobs) >= 1 or offered == 8 > others / (jobs - 1)
    assert offered == 8 or jobs_expected(offered - 1, others, jobs) < 1


def test_without_a_round_to_look_at_the_capacity_offered_is_the_default() -> None:
    assert usual_capacity(500, 0) == 8
