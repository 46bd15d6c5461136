"""Any bytes are taken or refused with a reason. The fuzzer itself is ``make fuzz``; this is a small, fixed one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import seeds
from tests.fuzz.changes import shuffled
from tests.fuzz.targets import TARGETS

INPUTS = 500
NAMES = sorted(TARGETS)

BUNDLE = seeds.bundles()[1]
FOUND: list[tuple[str, bytes]] = [
    ("evidence", BUNDLE.replace(b'"sampling_void":0.01', b'"sampling_void":NaN')),
    ("evidence", BUNDLE.replace(b'"sampling_void":0.01', b'"sampling_void":1E400')),
    ("evidence", BUNDLE.replace(b'"sampling_void":0.01', b'"sampling_void":-Infinity')),
    ("evidence", BUNDLE.replace(b'"sampling_void":0.01', b'"sampling_void":' + b"[" * 990 + b"]" * 990)),
]
"""Inputs that once found a defect, and must be refused."""


@pytest.mark.parametrize("name", NAMES)
def test_our_own_encodings_are_taken(name: str) -> None:
    target = TARGETS[name]
    assert all(target.take(data) for data in target.seeds())


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_once_broke_a_parser_is_refused(name: str, data: bytes) -> None:
    assert not TARGETS[name].take(data)


@pytest.mark.parametrize("name", NAMES)
def test_changed_encodings_are_taken_or_refused_with_a_reason(name: str) -> None:
    target, chance = TARGETS[name], random.Random(20)
    pool, taken = target.seeds(), 0
    for _ in range(INPUTS):
        data = target.change(chance.choice(pool), chance, shuffled(chance))[: target.longest]
        if target.take(data):
            taken += 1
            pool.append(data)
    assert 0 < taken < INPUTS


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=600))
def test_any_bytes_are_taken_or_refused_with_a_reason(name: str, data: bytes) -> None:
    TARGETS[name].take(data)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=100)
@given(draw=st.data())
def test_spliced_encodings_are_taken_or_refused_with_a_reason(name: str, draw: st.DataObject) -> None:
    target = TARGETS[name]
    first, second = (draw.draw(st.sampled_from(target.seeds())) for _ in range(2))
    cut, resume = draw.draw(st.integers(0, len(first))), draw.draw(st.integers(0, len(second)))
    target.take(first[:cut] + draw.draw(st.binary(max_size=20)) + second[resume:])
