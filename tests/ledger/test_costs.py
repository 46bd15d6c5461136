"""The auditor's own arithmetic of appeals: nothing made or lost, and nobody gains by overturning itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.appeals import costs_of, overturned_by
from ledger.book import MemoryBook
from ledger.facts import Appeal, Committee, Round, Seat
from protocol.chain.structs import RoundsTerms

amounts = st.integers(min_value=0, max_value=2**100)
ENDS = ("upheld", "overturned", "undecided")


@given(amounts, amounts, amounts, amounts, amounts, st.sampled_from(ENDS))
def test_a_deposit_and_what_covers_its_fees_go_to_jurors_treasury_and_appellant(
    bond: int, most_fees: int, share: int, taken: int, bounty: int, end: str
) -> None:
    penalties = RoundsTerms(1, 1, 1, bond, bounty)
    deposit, fees = bond + most_fees, most_fees // 2
    costs = costs_of(penalties, deposit, fees, share, taken, end)
    assert deposit + costs.covered == fees + costs.left + costs.forfeited
    assert costs.covered <= min(fees, share)
    assert costs.left >= 0
    assert costs.awarded <= (taken if end == "overturned" else 0)
    assert costs.forfeited == (bond if end == "upheld" else 0)
    bounty_given = costs.awarded - min(fees, taken)
    assert end != "overturned" or taken == 0 or 2 * bounty_given < taken


@pytest.mark.parametrize(
    ("votes", "against", "jurors"),
    [
        ([(1, 0), (1, 0), (0, 1)], "accepted", [11, 12]),
        ([(0, 1), (1, 0), (0, 1)], "fraud", [11, 13]),
        ([(0, 0), (1, 0), (0, 0)], "void", [11, 13]),
        ([(0, 0), (1, 0), (0, 1)], "void", []),
        ([None, (1, 0), (1, 0)], "accepted", [12, 13]),
        ([None, None, (1, 0)], "void", []),
    ],
)
def test_only_a_majority_that_voted_for_the_verdict_is_overturned(
    votes: list[tuple[int, int] | None], against: str, jurors: list[int]
) -> None:
    book = MemoryBook()
    empty = dict.fromkeys(Round.__slots__, 0)
    book.put(Round(**empty | {"round": 1, "committee": 3}))
    book.put(Committee(1, 0, 0, b"", b"".join(juror.to_bytes(4, "big") for juror in (11, 12, 13))))
    for place, vote in enumerate(votes):
        accept, fraud = vote or (0, 0)
        state = "revealed" if vote else "abstained"
        book.put(Seat(1, 0, 11 + place, place, state, b"", accept, fraud, b"", b"", b"", 0, 0))
    empty = dict.fromkeys(Appeal.__slots__, 0)
    assert overturned_by(book, Appeal(**empty | {"round": 1, "job": 0, "against": against})) == jurors
