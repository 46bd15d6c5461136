"""Any two files go through a frame and back to the bit, and no other bytes pass for a frame."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.broadcast.deltas.frames import SharedRange, decode, encode
from protocol.errors import Rejected
from tests.protocol.evolving import EvolvingModel, bfloat16

SHIFTS = {1: (2, 3, 63), 2: (7, 10, 63), 4: (23, 63), 8: (55, 63)}


def reading(*files):
    return lambda file, offset, size: np.frombuffer(files[file], np.uint8)[offset : offset + size].copy()


def through(base: bytes, new: bytes, parts, start: int = 0) -> bytes:
    frame = encode(np.frombuffer(new, np.uint8), start, parts, reading(base))
    made = np.empty(len(new), np.uint8)
    decode(frame, made, [len(base)], reading(base))
    assert made.tobytes() == new
    return frame


@st.composite
def pairs(draw):
    """Two arrays of values of one width: any bits, some of them changed by little, by much or not at all."""
    width = draw(st.sampled_from((1, 2, 4, 8)))
    special = [0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1]
    value = st.one_of(st.integers(0, (1 << 8 * width) - 1), st.sampled_from(special))
    base = draw(st.lists(value, min_size=1, max_size=200))
    change = st.one_of(st.just(0), st.integers(-3, 3), st.integers(0, (1 << 8 * width) - 1))
    new = [(old + draw(change)) % (1 << 8 * width) for old in base]
    packed = [b"".join(number.to_bytes(width, "little") for number in numbers) for numbers in (base, new)]
    return width, draw(st.sampled_from(SHIFTS[width])), *packed


@given(pairs())
@example((8, 63, (1 << 63).to_bytes(8, "little"), bytes(8)))
@example((8, 63, b"\xff" * 8, b"\xff" * 7 + b"\x7f"))
@settings(max_examples=300, deadline=None)
def test_any_values_come_back_to_the_bit(pair):
    width, shift, base, new = pair
    through(base, new, [SharedRange(0, len(new), 0, 0, width, shift)])


@given(st.binary(min_size=40, max_size=200), st.integers(0, 39), st.integers(1, 90), st.integers(0, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_a_frame_may_begin_and_end_within_a_value(file, start, size, gap, data):
    base = bytes(data.draw(st.binary(min_size=120, max_size=120)))
    parts = [SharedRange(gap, 24, 0, 8, 4, 23), SharedRange(gap + 24 + gap, 32, 0, 40, 8, 55)]
    new = file[start : start + size]
    if new:
        through(base, new, parts, start)


def test_steps_of_a_small_rate_take_a_hundredth_of_the_weights():
    model = EvolvingModel({"w": (1 << 20,)})
    before = bfloat16(model.weights["w"])
    model.step()
    after = bfloat16(model.weights["w"])
    frame = through(before.tobytes(), after.tobytes(), [SharedRange(0, 2 << 20, 0, 0, 2, 7)])
    assert (2 << 20) / len(frame) > 100


def test_values_that_have_nothing_in_common_take_little_more_than_themselves():
    random = np.random.default_rng(1)
    base, new = random.bytes(1 << 16), random.bytes(1 << 16)
    assert len(through(base, new, [SharedRange(0, 1 << 16, 0, 0, 2, 7)])) < (1 << 16) + 64


def test_equal_values_take_a_section_only():
    values = np.random.default_rng(2).bytes(1 << 16)
    assert len(through(values, values, [SharedRange(0, 1 << 16, 0, 0, 2, 7)])) == 24


FRAMES = []
for seed in range(3):
    evolving = EvolvingModel({"w": (4096,)}, rate=1e-4, seed=seed)
    old = bfloat16(evolving.weights["w"]).tobytes()
    evolving.step()
    now = bfloat16(evolving.weights["w"]).tobytes()
    FRAMES.append(
        (old, now, encode(np.frombuffer(now, np.uint8), 0, [SharedRange(64, 8000, 0, 64, 2, 7)], reading(old)))
    )


@given(st.sampled_from(FRAMES), st.data())
@settings(max_examples=300, deadline=None)
def test_a_frame_changed_anywhere_is_refused_or_makes_something_of_the_same_size(known, data):
    base, new, frame = known
    at = data.draw(st.integers(0, len(frame) - 1))
    changed = bytearray(frame)
    changed[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed) - 1)) :]
    made = np.zeros(len(new) + 8, np.uint8)
    with contextlib.suppress(Rejected):
        decode(bytes(changed), made[:-8], [len(base)], reading(base))
    assert not made[-8:].any()


@given(st.binary(max_size=200), st.integers(1, 100))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_frame_or_refused(data, size):
    made = np.zeros(size, np.uint8)
    try:
        decode(data, made, [64], reading(bytes(64)))
    except Rejected:
        return


@pytest.mark.parametrize("frame", [b"", b"\x00" * 23, b"\x03" + b"\x00" * 23])
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(Rejected, match="invalid frame"):
        decode(frame, np.zeros(4, np.uint8), [64], reading(bytes(64)))
