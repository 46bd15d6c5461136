"""The auditor's own arithmetic of appeals: nothing made or lost, and nobody gains by overturning itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.appeals import contradicted_by, costs_of
from ledger.book import MemoryBook
from ledger.facts import Appeal, Committee, Round, Seat
from protocol.chain.structs import RoundsTerms

amounts = st.integers(min_value=0, max_value=2**100)
VERDICTS = ("accepted", "fraud", "unavailable", "void")


@given(amounts, amounts, amounts, amounts, st.sampled_from(VERDICTS), st.sampled_from([None, *VERDICTS]))
def test_a_deposit_goes_to_jurors_treasury_and_appellant(
    bond: int, most_fees: int, taken: int, bounty: int, against: str, named: str | None
) -> None:
    deposit, fees = bond + most_fees, most_fees // 2
    costs = costs_of(RoundsTerms(1, 1, 1, bond, bounty), deposit, fees, taken, against, named)
    assert deposit == fees + costs.left + costs.forfeited
    assert costs.left >= 0
    assert costs.awarded <= taken
    assert costs.forfeited == (bond if named == against and named != "unavailable" else 0)
    bounty_given = costs.awarded - min(fees, taken)
    assert taken == 0 or 2 * bounty_given < taken
    assert bounty_given == 0 or named != against


@pytest.mark.parametrize(
    ("votes", "named", "jurors"),
    [
        ([(1, 0), (1, 0), (0, 1)], "fraud", [11, 12]),
        ([(0, 1), (1, 0), (0, 1)], "accepted", [11, 13]),
        ([(0, 0), (1, 0), (0, 1)], "accepted", [13]),
        ([(0, 0), (1, 1), (0, 1)], "accepted", [13]),
        ([None, (1, 0), (0, 1)], "void", []),
        ([(1, 0), (0, 0), (0, 1)], "unavailable", []),
        ([(1, 0), (0, 0), (0, 1)], None, []),
    ],
)
def test_only_votes_for_the_opposite_of_what_an_appeal_names_pay(
    votes: list[tuple[int, int] | None], named: str | None, jurors: list[int]
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
    assert contradicted_by(book, Appeal(**empty | {"round": 1, "job": 0}), named) == jurors
