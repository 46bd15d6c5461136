"""The auditor's own arithmetic: majorities and draws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.rounds import draw
from ledger.audit.verdicts import majority

bitmaps = st.integers(min_value=0, max_value=2**256 - 1)


@given(st.lists(bitmaps, min_size=1, max_size=15), st.integers(min_value=1, max_value=8))
def test_a_bit_is_set_where_enough_votes_set_it(votes: list[int], threshold: int) -> None:
    verdict = majority(votes, threshold)
    for bit in range(256):
        assert verdict >> bit & 1 == (sum(vote >> bit & 1 for vote in votes) >= threshold)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 1), st.integers(1, 256), st.data())
def test_a_draw_seats_each_eligible_slot_at_most_once(
    seed: bytes, attempt: int, slot_count: int, data: st.DataObject
) -> None:
    eligible = data.draw(st.integers(min_value=1, max_value=2**slot_count - 1))
    seats = data.draw(st.integers(min_value=1, max_value=min(15, eligible.bit_count())))
    slots = draw(seed, attempt, slot_count, eligible, seats)
    assert len(set(slots)) == seats
    assert all(eligible >> slot & 1 for slot in slots)
