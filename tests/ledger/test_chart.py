"""Charts of a report: round ticks, gaps where nothing is known, and text that stays text."""

from __future__ import annotations

import re

import pytest

from ledger.explorer.chart import axis, chart, legend
from ledger.explorer.series import Series


@pytest.mark.parametrize(
    ("values", "whole", "ticks"),
    [
        ([0, 1], False, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([0, 7], True, (0, 2, 4, 6, 8)),
        ([1, 2], True, (1, 2)),
        ([0, 0], False, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([117, 1230], True, (0, 500, 1000, 1500)),
    ],
)
def test_an_axis_has_round_ticks_around_its_values(values: list[float], whole: bool, ticks: tuple[float, ...]) -> None:
    found = axis(values, 0, 100, whole)
    assert found.ticks == pytest.approx(ticks)
    assert found.place(found.ticks[0]) == 0
    assert found.place(found.ticks[-1]) == 100


def test_a_line_breaks_where_a_value_is_not_known() -> None:
    rows = tuple((at, (None if at == 3 else at / 10,)) for at in (5, 4, 3, 2))
    drawn = chart(Series("Reward by version", "version", ("Mean reward",), "3", rows))
    lines = re.findall(r'class="line series-1" d="([^"]+)"', drawn)
    assert [line.count("L") for line in lines] == [0, 1]
    assert "Version 2 to 5. Mean reward: 0.2 to 0.5, newest 0.5." in drawn


def test_amounts_are_drawn_in_tokens_and_text_is_escaped() -> None:
    series = Series(
        "<b>", "round", ("<i>", "none"), "wei", ((1, (10**18, None)), (2, (3 * 10**18, None))), ("good", "bad")
    )
    drawn = chart(series) + legend(series)
    assert "&lt;i&gt;: 1 to 3, newest 3. none: nothing." in drawn
    assert "<b>" not in drawn
    assert "<i>" not in drawn
