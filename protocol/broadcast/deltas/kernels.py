"""Compiled loops of the code of deltas, one set for each width of a value. Import it late, see ``protocol.compiled``.

The format is that of ``protocol.broadcast.deltas.frames``. A loop over values takes about two cycles for each; the code
itself costs some nanoseconds for each value that changed.

Axes: N values, C changes, W words of 64 bits, K classes (256).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled, inlined

CLASSES = 256
LONGEST_UNARY = 24
"""A quotient of so many ones announces the plain number, in 64 bits."""
HALVED_AT = 64
"""Numbers after which the average that chooses a parameter forgets half of what it has seen."""
ROOM_BITS = 512
"""More than one change, and what is written once for a class, can take."""
NEVER = 1 << 62

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@inlined
def ordered(bits: Any, sign: int) -> Any:
    """Returns the place of a value of sign and magnitude in the order of all: -1 for minus 0, 0 for 0."""
    return bits if bits & sign == 0 else -1 - (bits & ~sign)


@inlined
def put(words_W: U64, at: int, value: int, count: int) -> int:
    """Writes the lowest ``count`` bits of ``value`` from bit ``at`` on; returns where they end."""
    if count == 0:
        return at
    word, shift = at >> 6, np.uint64(at & 63)
    bits = np.uint64(value)
    if count < 64:
        bits &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
    words_W[word] |= bits << shift
    if (at & 63) + count > 64:
        words_W[word + 1] |= bits >> (np.uint64(64) - shift)
    return at + count


@inlined
def get(words_W: U64, at: int, count: int) -> Any:
    """Returns the ``count`` bits from bit ``at`` on."""
    if count == 0:
        return 0
    word, shift = at >> 6, np.uint64(at & 63)
    bits = words_W[word] >> shift
    if (at & 63) + count > 64:
        bits |= words_W[word + 1] << (np.uint64(64) - shift)
    if count < 64:
        bits &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
    return np.int64(bits)


@inlined
def parameter(state: I64) -> int:
    """Returns the bits of a remainder that suit the average so far, of numbers with a geometric law."""
    scaled, k = state[0] - (state[0] >> 2) - (state[0] >> 4), 0
    while (state[1] << k) < scaled:
        k += 1
    return k


@inlined
def note(state: I64, value: int) -> None:
    """Adds a number to the average."""
    state[0] += min(value, NEVER >> 16)
    state[1] += 1
    if state[1] == HALVED_AT:
        state[0] >>= 1
        state[1] >>= 1


@inlined
def begin(state: I64, k: int) -> None:
    """Begins an average at 2^k, of little weight."""
    state[0], state[1] = np.int64(2) << k, 2


@inlined
def put_number(words_W: U64, at: int, value: int, state: I64) -> int:
    """Writes a number that is not negative in the Golomb-Rice code that ``state`` chooses; returns where it ends."""
    k = parameter(state)
    quotient = value >> k
    note(state, value)
    if quotient >= LONGEST_UNARY:
        at = put(words_W, at, -1, LONGEST_UNARY)
        return put(words_W, at, value, 64)
    at = put(words_W, at, (1 << quotient) - 1, quotient + 1)
    return put(words_W, at, value, k)


@inlined
def get_number(words_W: U64, at: int, state: I64, end: I64) -> Any:
    """Returns the number at bit ``at``, and where it ends in ``end[0]``."""
    k = parameter(state)
    quotient = 0
    while quotient < LONGEST_UNARY and get(words_W, at + quotient, 1) == 1:
        quotient += 1
    if quotient == LONGEST_UNARY:
        value = get(words_W, at + LONGEST_UNARY, 64) & 0x7FFFFFFFFFFFFFFF
        end[0] = at + LONGEST_UNARY + 64
    else:
        value = (quotient << k) | get(words_W, at + quotient + 1, k)
        end[0] = at + quotient + 1 + k
    note(state, value)
    return value


def changes(base_N: Any, new_N: Any, sign: int, shift: int, class_C: U8, gap_C: U32, step_C: I64) -> int:
    """Lists the changes in order: the class of the value, how many of it came since its last change, and the step."""
    since_K = np.zeros(CLASSES, np.int64)
    count = 0
    for n in range(len(base_N)):
        before = np.int64(base_N[n])
        kind = ((before & ~sign) >> shift) & (CLASSES - 1)
        since = since_K[kind] + 1
        if base_N[n] != new_N[n]:
            class_C[count], gap_C[count] = kind, since - 1
            step_C[count] = ordered(np.int64(new_N[n]), sign) - ordered(before, sign)
            count += 1
            since = 0
        since_K[kind] = since
    return count


def pack(class_C: U8, gap_C: U32, step_C: I64, count_K: I64, first_K: I64, words_W: U64) -> int:
    """Writes the changes, class by class; returns the number of bits, -1 if they are more than ``words_W`` holds.

    ``count_K`` takes the changes of each class, ``first_K`` the parameter that its gaps begin with.
    """
    order_C = np.empty(len(class_C), np.int64)
    total_K, start_K = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
    for c in range(len(class_C)):
        count_K[class_C[c]] += 1
        total_K[class_C[c]] += gap_C[c]
    for k in range(1, CLASSES):
        start_K[k] = start_K[k - 1] + count_K[k - 1]
    place_K = start_K.copy()
    for c in range(len(class_C)):
        order_C[place_K[class_C[c]]] = c
        place_K[class_C[c]] += 1
    gaps, runs, sizes = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    room, at = 64 * len(words_W) - ROOM_BITS, 0
    for k in range(CLASSES):
        if count_K[k] == 0:
            continue
        while (count_K[k] << first_K[k]) < total_K[k]:
            first_K[k] += 1
        begin(gaps, first_K[k])
        begin(runs, 3)
        begin(sizes, 0)
        for c in range(start_K[k], start_K[k] + count_K[k]):
            if at > room:
                return -1
            at = put_number(words_W, at, gap_C[order_C[c]], gaps)
            at = put(words_W, at, 1 if step_C[order_C[c]] < 0 else 0, 1)
        run = 0
        for c in range(start_K[k], start_K[k] + count_K[k]):
            if at > room:
                return -1
            step = step_C[order_C[c]]
            size = -1 - step if step < 0 else step - 1
            if size == 0:
                run += 1
                continue
            at = put_number(words_W, at, run, runs)
            at = put_number(words_W, at, size - 1, sizes)
            run = 0
        if run:
            at = put_number(words_W, at, run, runs)
    return at


def unpack(words_W: U64, bits: int, count_K: I64, first_K: I64, gap_C: I64, step_C: I64) -> int:
    """Reads the changes of all classes, class by class; returns where they end, -1 if that is beyond ``bits``."""
    gaps, runs, sizes, end = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)
    at = start = 0
    for k in range(CLASSES):
        if count_K[k] == 0:
            continue
        stop = start + count_K[k]
        begin(gaps, first_K[k])
        begin(runs, 3)
        begin(sizes, 0)
        for c in range(start, stop):
            gap_C[c] = get_number(words_W, at, gaps, end)
            step_C[c] = 1 - 2 * get(words_W, end[0], 1)
            at = end[0] + 1
            if at > bits:
                return -1
        c = start
        while c < stop:
            c += get_number(words_W, at, runs, end)
            at = end[0]
            if at > bits or c > stop or c < start:
                return -1
            if c < stop:
                size = get_number(words_W, at, sizes, end) + 1
                at = end[0]
                if at > bits:
                    return -1
                step_C[c] += size if step_C[c] > 0 else -size
                c += 1
        start = stop
    return at


def apply(base_N: Any, new_N: Any, sign: int, shift: int, count_K: I64, gap_C: I64, step_C: I64) -> int:
    """Writes the base with the changes; returns how many were there."""
    left_K, place_K, stop_K = np.full(CLASSES, NEVER), np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
    start = made = 0
    for k in range(CLASSES):
        place_K[k], stop_K[k] = start, start + count_K[k]
        if count_K[k]:
            left_K[k] = gap_C[start] + 1
        start += count_K[k]
    new_N[:] = base_N
    for n in range(len(base_N)):
        before = np.int64(base_N[n])
        kind = ((before & ~sign) >> shift) & (CLASSES - 1)
        left = left_K[kind] - 1
        if left == 0:
            place = place_K[kind]
            after = ordered(before, sign) + step_C[place]
            new_N[n] = after if after >= 0 else sign | (-1 - after)
            made += 1
            place_K[kind] = place + 1
            left = gap_C[place + 1] + 1 if place + 1 < stop_K[kind] else NEVER
        left_K[kind] = left
    return made


class DeltaKernels(NamedTuple):
    """The loops for values of one width."""

    changes: Any
    pack: Any
    unpack: Any
    apply: Any


@functools.cache
def for_width(width: int) -> DeltaKernels:
    """Returns the loops for values of ``width`` bytes: 1, 2, 4 or 8."""
    values = f"uint{8 * width}[::1]"
    return DeltaKernels(
        compiled(f"int64({values},{values},int64,int64,uint8[::1],uint32[::1],int64[::1])")(changes),
        _pack(),
        _unpack(),
        compiled(f"int64({values},{values},int64,int64,int64[::1],int64[::1],int64[::1])")(apply),
    )


@functools.cache
def _pack() -> Any:
    return compiled("int64(uint8[::1],uint32[::1],int64[::1],int64[::1],int64[::1],uint64[::1])")(pack)


@functools.cache
def _unpack() -> Any:
    return compiled("int64(uint64[::1],int64,int64[::1],int64[::1],int64[::1],int64[::1])")(unpack)
