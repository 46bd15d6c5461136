"""Answers of a store prove what they say to anyone, and nothing that its key did not sign."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.api import StoreRefusal
from protocol.wire.assignments import Leaf, pack_leaves
from protocol.wire.receipts import HELD_SECONDS
from protocol.wire.store_answers import PartReceipt, StoreAnswers, parse_answers

STORE, STRANGER = (Wallet(name, secrets.token_bytes(32)) for name in ("store", "stranger"))
CHAIN, ROUNDS, RUN, NOW = 31337, "0x" + "22" * 20, 3, 1_900_000_000
ROOTS = [bytes([number]) * 32 for number in (1, 2)]
LEAVES = pack_leaves([Leaf(job, 5, root) for job, root in enumerate(ROOTS)])


def answers(
    refused: bytes | None = ROOTS[1], at: int = NOW + 60, by: Wallet = STORE, denied_by: Wallet = STORE, **changes: Any
) -> StoreAnswers:
    """What a store signed; ``changes`` replace fields of it afterwards."""
    signature = by.sign_typed(auth.receipt(CHAIN, ROUNDS, RUN, 9, 7, LEAVES, NOW))
    refusal = None
    if refused is not None:
        denial = denied_by.sign_typed(auth.refusal(CHAIN, ROUNDS, RUN, refused, at))
        refusal = StoreRefusal(root=refused, time=at, signature=denial)
    made = StoreAnswers(
        chain_id=CHAIN,
        rounds=ROUNDS,
        run=RUN,
        store=STORE.address,
        receipt=PartReceipt(round=9, node=7, leaves=LEAVES, time=NOW, signature=signature),
        refusal=refusal,
    )
    return made.model_copy(update=changes)


def test_a_receipt_alone_says_what_was_held_and_until_when_it_is_served() -> None:
    said = answers(refused=None).proof()
    assert "held the 2 artifacts of node 7 in round 9 at 2030-03-17 17:46:40 UTC" in said
    assert "until 2030-03-24" in said
    assert "contradiction" not in said


@pytest.mark.parametrize("at", [NOW + 1, NOW + 60, NOW + HELD_SECONDS])
def test_a_refusal_while_the_receipt_holds_is_a_contradiction(at: int) -> None:
    assert answers(at=at).proof().startswith(f"contradiction: store {STORE.address}")


@pytest.mark.parametrize("at", [NOW - 1, NOW, NOW + HELD_SECONDS + 1])
def test_a_refusal_before_or_after_that_is_none(at: int) -> None:
    with pytest.raises(Rejected, match="no contradiction: the refusal is of"):
        answers(at=at).proof()


def test_a_refusal_of_another_artifact_is_none() -> None:
    with pytest.raises(Rejected, match="no contradiction: the receipt is not for the refused artifact 0x0707"):
        answers(refused=b"\x07" * 32).proof()


@pytest.mark.parametrize("change", [{"run": 4}, {"chain_id": 1}, {"rounds": "0x" + "33" * 20}])
def test_nobody_can_move_a_stores_answers_elsewhere(change: dict[str, object]) -> None:
    with pytest.raises(Rejected, match="the receipt is signed by"):
        answers(**change).proof()


def test_nobody_can_frame_a_store() -> None:
    with pytest.raises(Rejected, match="the receipt is signed by"):
        answers(by=STRANGER).proof()
    with pytest.raises(Rejected, match="the refusal is signed by"):
        answers(denied_by=STRANGER).proof()


def test_what_is_written_is_read_back() -> None:
    for made in (answers(), answers(refused=None)):
        assert parse_answers(made.model_dump_json().encode()) == made


@given(st.binary(max_size=300) | st.just(b"{" * 100_000) | st.just(b'"' + b"x" * (1 << 20)))
def test_any_other_bytes_are_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(Rejected, match="invalid answers"):
        parse_answers(data)
