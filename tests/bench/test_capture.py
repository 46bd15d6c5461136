"""The odds of capture against counting every committee of a small house."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.bench.capture import best_of, majority_odds


@pytest.mark.parametrize(("slots", "hostile", "seats"), [(9, 3, 3), (9, 4, 5), (8, 0, 3), (7, 7, 5), (10, 2, 5)])
def test_odds_are_those_of_counting_every_committee(slots: int, hostile: int, seats: int) -> None:
    committees = list(combinations(range(slots), seats))
    captured = sum(2 * sum(slot < hostile for slot in committee) > seats for committee in committees)
    assert majority_odds(slots, hostile, seats) == pytest.approx(captured / len(committees))


def test_a_discarded_block_is_another_draw() -> None:
    assert best_of(0.1, 1) == pytest.approx(0.1)
    assert best_of(0.1, 3) == pytest.approx(1 - 0.9**3)
