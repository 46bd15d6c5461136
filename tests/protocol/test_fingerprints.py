"""Fingerprints of a prefill: exact, one juror's and one draw's, near for honest noise and apart for anything else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.fingerprints import PROJECTIONS, Likeness, compare, project, rows_of
from protocol.wire.toploc.codec import chunk_spans

DRAW, JOB = b"\x07" * 32, b"\x0b" * 32
MOST, MOST_GAP = 0.05, 0.01
words = st.binary(min_size=32, max_size=32)
jurors = st.integers(0, 2**32 - 1)


def rows(seed: int, count: int = 4, hidden: int = 64) -> np.ndarray:
    """Rows like those of a model, as bits of bf16 numbers."""
    values = np.random.default_rng(seed).standard_normal((count, hidden)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def likeness(said: np.ndarray, own: np.ndarray, said_gap: float = 0.5, own_gap: float = 0.5) -> set[Likeness]:
    gaps = np.full(len(own), own_gap, np.float32)
    found = compare(said, np.full(len(own), said_gap, np.float32), own, gaps, MOST, MOST_GAP)
    return {one.likeness for one in found}


@given(words, jurors, st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_each_row_is_one_of_its_rollouts_last_chunk(seed: bytes, juror: int, lengths: list[int]) -> None:
    for row, length in zip(rows_of(seed, juror, lengths), lengths, strict=True):
        start, stop = chunk_spans(length)[-1]
        assert start <= row < stop


def test_every_juror_and_every_job_has_rows_of_its_own() -> None:
    lengths = [992] * 64
    rows = [rows_of(*place, lengths) for place in ((JOB, 3), (JOB, 4), (DRAW, 3))]
    assert len({tuple(each) for each in rows}) == 3
    assert len(set(rows[0])) > 20


@given(st.integers(0, 2**32))
def test_projections_do_not_depend_on_the_order_of_addition(seed: int) -> None:
    bits = rows(seed)
    values = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    found = project(DRAW, JOB, 3, bits)
    assert found.shape == (4, PROJECTIONS)
    assert np.array_equal(found, project(DRAW, JOB, 3, bits.copy(order="F")))
    assert (np.abs(found) <= np.abs(values).sum(1, keepdims=True).astype(np.float32)).all()


def test_the_same_rows_give_every_juror_and_every_draw_another_fingerprint() -> None:
    own = project(DRAW, JOB, 3, rows(1))
    assert likeness(project(DRAW, JOB, 3, rows(1)), own) == {Likeness.EQUAL}
    assert likeness(project(DRAW, JOB, 4, rows(1)), own) == {Likeness.APART}
    assert likeness(project(bytes(32), JOB, 3, rows(1)), own) == {Likeness.APART}
    assert likeness(project(DRAW, bytes(32), 3, rows(1)), own) == {Likeness.APART}


def test_a_rounded_row_is_near_and_another_row_apart() -> None:
    own = project(DRAW, JOB, 3, rows(1))
    chance = np.random.default_rng(2)
    rounded = rows(1) ^ (chance.random(rows(1).shape) < 0.2).astype(np.uint16)
    assert likeness(project(DRAW, JOB, 3, rounded), own) == {Likeness.NEAR}
    assert likeness(project(DRAW, JOB, 3, rows(2)), own) == {Likeness.APART}
    assert likeness(chance.standard_normal(own.shape).astype(np.float32) * own.std(), own) == {Likeness.APART}
    assert likeness(np.zeros_like(own), own) == {Likeness.APART}


def test_the_gap_counts_beside_the_row() -> None:
    own = project(DRAW, JOB, 3, rows(1))
    assert likeness(own, own, 0.505) == {Likeness.NEAR}
    assert likeness(own, own, 0.52) == {Likeness.APART}
    assert likeness(np.zeros_like(own), np.zeros_like(own)) == {Likeness.EQUAL}


def test_the_figures_are_these() -> None:
    """Golden vectors for software of other jurors."""
    assert rows_of(JOB, 3, [100, 100, 100]) == GOLDEN_ROWS
    (figures,) = project(DRAW, JOB, 3, np.arange(0x3F80, 0x3F88, dtype=np.uint16)[None])
    assert figures.tolist() == GOLDEN_FIGURES


GOLDEN_ROWS = [84, 67, 98]
GOLDEN_FIGURES = [4.0625, -0.015625, 1.96875, -0.0625, -2.03125, -0.046875, -2.109375, -2.125]
