"""The fold, by examples and by what any order of movements must add up to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.book import MemoryBook
from ledger.facts import Credit, CreditEntry, Holding, Node, Round, Run, Slash
from ledger.fold import fold, fold_all
from protocol.chain.events import (
    BondToppedUp,
    BondWithdrawn,
    CreditsBought,
    CreditsLocked,
    CreditsRedeemed,
    CreditsUnlocked,
    EscrowReleased,
    EscrowReserved,
    Event,
    JobsFreed,
    Log,
    NodeJoined,
    NodeLeft,
    NodeRegistered,
    NodeRetired,
    NodeSlashed,
    RoundOpened,
    RoundVoided,
    RunFunded,
    RunOpened,
    RunRefunded,
    Transfer,
)
from protocol.chain.structs import Cause, Role, RunTerms
from protocol.errors import Misconfigured
from protocol.wire.assignments import Listing, pack_assignments

OWNERS = ["0x" + digit * 40 for digit in "abc"]
amounts = st.integers(min_value=1, max_value=2**128)
movements = st.one_of(
    st.builds(CreditsBought, st.sampled_from(OWNERS), amounts),
    st.builds(CreditsRedeemed, st.sampled_from(OWNERS), st.sampled_from(OWNERS), amounts),
    st.builds(CreditsLocked, st.sampled_from(OWNERS), st.just(1), amounts),
    st.builds(CreditsUnlocked, st.sampled_from(OWNERS), st.just(1), amounts),
)
transfers = st.builds(Transfer, st.sampled_from(OWNERS), st.sampled_from(OWNERS), amounts)


def logs(*events: Event) -> list[Log]:
    """One block for each event."""
    return [
        Log(number, bytes([number % 256]) * 32, b"\x01" * 32, 0, 1_000 + number, event)
        for number, event in enumerate(events)
    ]


def booked(*events: Event) -> MemoryBook:
    book = MemoryBook()
    fold_all(book, logs(*events))
    return book


def registered(node: int, role: Role, bond: int = 50, slot: int = 0, active_at: int = 0) -> NodeRegistered:
    return NodeRegistered(node, OWNERS[0], OWNERS[1], role, slot, 8, bond, active_at)


def opened_run() -> RunOpened:
    terms = RunTerms(OWNERS[0], OWNERS[1], b"\x01" * 32, 2, 3, 10, 1, 0, 1, 1, 1, 1, 0)
    return RunOpened(1, OWNERS[2], terms, b"\x02" * 32, "uri")


@given(st.lists(movements, max_size=40))
def test_a_balance_is_the_sum_of_its_movements(events: list[Event]) -> None:
    book = booked(*events)
    entries = list(book.all(CreditEntry))
    assert len(entries) == len(events)
    for credit in book.all(Credit):
        signed = {"bought": 1, "unlocked": 1, "redeemed": -1, "locked": -1}
        own = [entry for entry in entries if entry.owner == credit.owner]
        assert credit.balance == sum(signed[entry.kind] * entry.amount for entry in own)
        assert credit.balance == credit.bought + credit.unlocked - credit.redeemed - credit.locked


@given(st.lists(transfers, max_size=40))
def test_transfers_make_and_lose_no_token(events: list[Event]) -> None:
    assert sum(holding.tokens for holding in booked(*events).all(Holding)) == 0


@given(st.lists(st.one_of(movements, transfers), max_size=30), st.integers(min_value=0, max_value=30))
def test_folding_in_two_parts_is_folding_at_once(events: list[Event], cut: int) -> None:
    book = MemoryBook()
    fold_all(book, logs(*events)[:cut])
    fold_all(book, logs(*events)[cut:])
    assert list(book.all(Credit)) == list(booked(*events).all(Credit))


def test_a_bond_follows_top_up_slash_and_withdrawal() -> None:
    book = booked(
        registered(1, Role.WORKER),
        BondToppedUp(1, OWNERS[0], 5, 55),
        NodeSlashed(1, OWNERS[0], 9, Cause.FRAUD, 20, 35),
        NodeRetired(1, OWNERS[0], 77, 99),
        BondWithdrawn(1, OWNERS[0], 35),
    )
    (node,) = book.all(Node)
    assert (node.posted, node.topped_up, node.slashed, node.returned, node.bond) == (50, 5, 20, 35, 0)
    assert node.withdrawn
    (slash,) = book.all(Slash)
    assert (slash.cause, slash.round, slash.amount) == ("fraud", 9, 20)


def test_escrow_moves_between_free_and_reserved() -> None:
    book = booked(
        opened_run(),
        RunFunded(1, OWNERS[2], 100, 100),
        EscrowReserved(1, 1, 60),
        EscrowReleased(1, 1, 25),
        RunRefunded(1, OWNERS[2], 30, 35),
    )
    (run,) = book.all(Run)
    assert (run.funded, run.refunded, run.escrow, run.reserved) == (100, 30, 35, 35)


def test_only_active_bonded_validators_that_joined_the_run_are_eligible() -> None:
    assignments = pack_assignments([Listing(9, 2)])
    book = booked(
        opened_run(),
        registered(9, Role.WORKER),
        registered(1, Role.VALIDATOR, slot=0),
        registered(2, Role.VALIDATOR, slot=1, active_at=2_000),
        registered(3, Role.VALIDATOR, slot=2),
        registered(4, Role.VALIDATOR, slot=3),
        registered(5, Role.VALIDATOR, slot=4),
        registered(6, Role.VALIDATOR, slot=5),
        *(NodeJoined(1, node, opened_run().terms.rules_hash) for node in (1, 2, 3, 4, 5)),
        NodeLeft(1, 5),
        NodeSlashed(3, OWNERS[0], 1, Cause.ABSENCE, 1, 49),
        NodeRetired(4, OWNERS[0], 900, 999),
        RoundOpened(1, 1, 1, 0, 2, 6, 100, 5_000, assignments),
    )
    (round_,) = book.all(Round)
    assert round_.eligible == 0b000001


def test_jobs_are_in_flight_until_a_void_round_frees_them() -> None:
    assignments = pack_assignments([Listing(9, 2), Listing(9, 1)])
    story = [opened_run(), registered(9, Role.WORKER), RoundOpened(1, 1, 1, 0, 3, 0, 100, 5_000, assignments)]
    node = booked(*story, RoundVoided(1, 100)).find(Node, 9)
    assert node is not None
    assert node.in_flight == 3
    assert booked(*story, RoundVoided(1, 100), JobsFreed(1, 3)).find(Node, 9) == replace(node, in_flight=0)


def test_events_without_their_beginning_say_so() -> None:
    with pytest.raises(Misconfigured, match="node 7"):
        fold(MemoryBook(), logs(NodeRetired(7, OWNERS[0], 1, 2))[0])
