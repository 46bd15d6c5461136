"""How the trust tax is worked out, and what its last line says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.tax.__main__ import Pair, Side, show


def side(seconds: float, tokens: int, **parts: float) -> Side:
    return Side(wall_seconds=seconds, tokens=tokens, steps=10, accuracy=0.81, parts=parts)


@given(
    bare=st.tuples(st.floats(0.1, 1e4), st.integers(1, 10**7)),
    market=st.tuples(st.floats(0.1, 1e4), st.integers(1, 10**7)),
)
def test_the_tax_is_seconds_per_trained_token_over_the_bare_loops(
    bare: tuple[float, int], market: tuple[float, int]
) -> None:
    pair = Pair(1, side(*bare), side(*market))
    assert pair.wall_ratio == pytest.approx(market[0] / bare[0])
    assert pair.tax == pytest.approx(pair.wall_ratio * bare[1] / market[1])


def test_the_last_line_is_json_with_the_median_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [
        Pair(seed, side(10.0, 1000, generate=6.0, train=4.0), side(seconds, 1000, trainer=5.0))
        for seed, seconds in ((1, 30.0), (2, 18.0), (3, 21.0))
    ]
    show(pairs)
    shown = capsys.readouterr().out.splitlines()
    last = json.loads(shown[-1])
    assert last["ratio"] == 2.1
    assert last["wall_ratio"] == 2.1
    assert set(last["seeds"]) == {"1", "2", "3"}
    assert last["seeds"]["2"]["market"]["wall_seconds"] == 18.0
    text = "\n".join(shown)
    assert "bare: generate" in text
    assert "market, processor: trainer" in text
