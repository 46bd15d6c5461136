"""Frames: the code of deltas. Each makes a range of a new file from the files of a base version, and decodes alone.

    frame    = section, section, …            together exactly the range, in order
    section  = kind u8, width u8, shift u8, 0 u8, base file u16, 0 u16, size u32, payload bytes u32, base offset u64,
               payload                        little-endian; ``size`` counts bytes of the new file

    0 raw    payload: the bytes               base file and offset are 0
    1 same   payload: none                    the bytes at the base offset of the base file, counted by name
    2 steps  payload: n u16, n × (class u8, parameter u8, changes u32), words u64 …

The values of ``width`` bytes are taken as integers of sign and magnitude. A value's class is the magnitude in the base,
shifted right by ``shift``, modulo 256: in a floating-point format its exponent, which tells how likely an optimizer's
step changes it. The changes of one class, classes ascending: for each the gap (values of its class since the last
change) and the sign of its step (1 bit, 1 for down), then for the classes' steps of more than 1 the number of changes
by 1 before it and its size less 2; a last number counts the rest. The steps go through the values in their order, so
that -0 lies one below 0. Numbers are Golomb-Rice codes whose parameter follows the average of what came before
(``kernels.parameter``): the code has neither tables nor blocks, and is within a few percent of the entropy.

Integers only: the same bytes on every machine. PURE.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import kernels
from protocol.errors import Rejected

SPAN_BYTES = 16 << 20
"""Most bytes of a file that one frame makes, if a chunk has not more: each thread that makes or applies one needs twice
that memory, and ten times if every value changes."""
MAX_SECTIONS = 1 << 16
Bytes = NDArray[np.uint8]
ReadBase = Callable[[int, int, int], Bytes]
"""Returns bytes of a file of the base version: (index of the file by name, offset, size)."""

_RAW, _SAME, _STEPS = range(3)
_SECTION = struct.Struct("<BBBBHHIIQ")
_COUNT, _CLASS = struct.Struct("<H"), struct.Struct("<BBI")
_LONGEST_PARAMETER = 40
_BLOCK = 1 << 16
_SPARE_WORDS = 8


@dataclass(frozen=True, slots=True)
class SharedRange:
    """Values that a new file shares with a base version: ``size`` bytes, which begin at these offsets.

    Attributes:
        start: offset in the new file.
        size: bytes, a multiple of ``width``.
        file: index of the base's file, by name.
        offset: offset in that file.
        width: bytes of a value.
        shift: bits of the magnitude that do not count for its class, 63 for one class of all.
    """

    start: int
    size: int
    file: int
    offset: int
    width: int
    shift: int


def available() -> bool:
    """Returns whether the code runs on this machine: it needs numba."""
    return _loops() is not None


def encode(new: Bytes, start: int, parts: Sequence[SharedRange], read_base: ReadBase) -> bytes:
    """Returns the frame of ``new``, which begins at ``start`` of its file.

    ``parts`` ascend by their starts and do not overlap; what lies between them is written as it is.
    """
    made = bytearray()
    end = start + len(new)
    for part in (cut for part in parts if (cut := _cut(part, start, end)) is not None):
        if part.start > start:
            made += _raw(new[: part.start - start])
        values = new[part.start - start : part.start - start + part.size]
        made += _shared(values, part, read_base(part.file, part.offset, part.size))
        new, start = new[part.start - start + part.size :], part.start + part.size
    return bytes(made + _raw(new)) if len(new) else bytes(made)


def decode(frame: bytes | memoryview, new: Bytes, files: Sequence[int], read_base: ReadBase) -> None:
    """Fills ``new`` with the bytes that ``frame`` makes; ``files`` are the sizes of the base's files, by name.

    Raises:
        Rejected: the frame is not valid. What ``new`` holds then is undefined.
    """
    at = 0
    for index, (section, payload) in enumerate(_sections(memoryview(frame))):
        if index == MAX_SECTIONS:
            raise Rejected(f"invalid frame: expected at most {MAX_SECTIONS} sections")
        kind, width, shift, zero, file, zeros, size, _, offset = section
        if size == 0 or size > len(new) - at or zero or zeros:
            raise Rejected("invalid frame: a section does not fit into its range")
        target = new[at : at + size]
        if kind == _RAW:
            if len(payload) != size or (width, shift, file, offset) != (0, 0, 0, 0):
                raise Rejected("invalid frame: plain bytes of another size")
            target[:] = np.frombuffer(payload, np.uint8)
        elif kind in (_SAME, _STEPS):
            if file >= len(files) or offset + size > files[file]:
                raise Rejected("invalid frame: it names bytes that the base does not have")
            _from_base(kind, width, shift, payload, read_base(file, offset, size), target)
        else:
            raise Rejected(f"invalid frame: a section of kind {kind}")
        at += size
    if at != len(new):
        raise Rejected(f"invalid frame: it makes {at} bytes, expected {len(new)}")


def _sections(frame: memoryview) -> Iterator[tuple[tuple[int, ...], memoryview]]:
    at = 0
    while at < len(frame):
        if at + _SECTION.size > len(frame):
            raise Rejected("invalid frame: it ends within a section")
        section = _SECTION.unpack_from(frame, at)
        at += _SECTION.size
        size = section[7]
        if at + size > len(frame):
            raise Rejected("invalid frame: it ends within a payload")
        yield section, frame[at : at + size]
        at += size


def _cut(part: SharedRange, start: int, end: int) -> SharedRange | None:
    """Returns what of ``part`` lies within a range, in whole values; None for nothing."""
    skipped = -(-max(0, start - part.start) // part.width) * part.width
    size = (min(part.start + part.size, end) - part.start - skipped) // part.width * part.width
    if size <= 0:
        return None
    return SharedRange(part.start + skipped, size, part.file, part.offset + skipped, part.width, part.shift)


def _raw(data: Bytes) -> bytes:
    return _SECTION.pack(_RAW, 0, 0, 0, 0, 0, len(data), len(data), 0) + data.tobytes()


def _shared(new: Bytes, part: SharedRange, base: Bytes) -> bytes:
    before, after = _values(base, part.width), _values(new, part.width)
    blocks = range(0, len(before), _BLOCK)  # whose comparison stays in the cache
    count = sum(int(np.count_nonzero(before[at : at + _BLOCK] != after[at : at + _BLOCK])) for at in blocks)
    if count == 0:
        return _SECTION.pack(_SAME, 0, 0, 0, part.file, 0, part.size, 0, part.offset)
    payload = _steps(before, after, part, count)
    if payload is None:
        return _raw(new)
    head = _SECTION.pack(_STEPS, part.width, part.shift, 0, part.file, 0, part.size, len(payload), part.offset)
    return head + payload


def _steps(before: Any, after: Any, part: SharedRange, count: int) -> bytes | None:
    """Returns the payload of the changes, or None if it would be longer than the values."""
    loops = _loops().for_width(part.width)
    class_C, gap_C, step_C = np.empty(count, np.uint8), np.empty(count, np.uint32), np.empty(count, np.int64)
    loops.changes(before, after, _sign(part.width), part.shift, class_C, gap_C, step_C)
    count_K, first_K = np.zeros(256, np.int64), np.zeros(256, np.int64)
    words_W = np.zeros(part.size // 8 + _SPARE_WORDS, np.uint64)
    bits = loops.pack(class_C, gap_C, step_C, count_K, first_K, words_W)
    if bits < 0:
        return None
    classes = np.flatnonzero(count_K)
    head = _COUNT.pack(len(classes)) + b"".join(_CLASS.pack(k, first_K[k], count_K[k]) for k in classes)
    payload = head + words_W[: -(-bits // 64)].astype("<u8").tobytes()
    return payload if len(payload) < part.size else None


def _from_base(kind: int, width: int, shift: int, payload: memoryview, base: Bytes, new: Bytes) -> None:
    if kind == _SAME:
        if len(payload) or (width, shift) != (0, 0):
            raise Rejected("invalid frame: bytes of the base with a payload")
        new[:] = base
        return
    if width not in (1, 2, 4, 8) or shift > 63 or len(new) % width:
        raise Rejected(f"invalid frame: values of {width} bytes in {len(new)}")
    count_K, first_K, words_W = _parse_steps(payload, len(new) // width)
    loops, total = _loops().for_width(width), int(count_K.sum())
    gap_C, step_C = np.empty(total, np.int64), np.empty(total, np.int64)
    if loops.unpack(words_W, 64 * (len(words_W) - _SPARE_WORDS), count_K, first_K, gap_C, step_C) < 0:
        raise Rejected("invalid frame: it ends within its changes")
    values, sign = new.view(f"<u{width}"), _sign(width)
    if loops.apply(_values(base, width), values, sign, shift, count_K, gap_C, step_C) != total:
        raise Rejected("invalid frame: changes beyond the last value")


def _parse_steps(payload: memoryview, values: int) -> tuple[Any, Any, Any]:
    """Returns the changes and the first parameter of each class, and the words."""
    if len(payload) < _COUNT.size:
        raise Rejected("invalid frame: no number of classes")
    (classes,) = _COUNT.unpack_from(payload)
    words_at = _COUNT.size + classes * _CLASS.size
    if words_at > len(payload) or (len(payload) - words_at) % 8:
        raise Rejected("invalid frame: it ends within its classes")
    count_K, first_K, last = np.zeros(256, np.int64), np.zeros(256, np.int64), -1
    for index in range(classes):
        kind, parameter, count = _CLASS.unpack_from(payload, _COUNT.size + index * _CLASS.size)
        if kind <= last or parameter > _LONGEST_PARAMETER or not 0 < count <= values:
            raise Rejected("invalid frame: expected classes in ascending order, each with changes")
        count_K[kind], first_K[kind], last = count, parameter, kind
    if count_K.sum() > values:
        raise Rejected("invalid frame: more changes than values")
    words = np.frombuffer(payload[words_at:], "<u8").astype(np.uint64)
    return count_K, first_K, np.concatenate([words, np.zeros(_SPARE_WORDS, np.uint64)])


def _values(data: Bytes, width: int) -> Any:
    """Returns the values in ``data`` as the loops take them, which refuse arrays that are read-only."""
    return np.require(data.view(f"<u{width}"), requirements="W")


def _sign(width: int) -> Any:
    """Returns the sign bit of a value of ``width`` bytes, as the loops take it."""
    return np.int64(-1 << 63 if width == 8 else 1 << (8 * width - 1))


def _loops() -> Any:
    return kernels("protocol.broadcast.deltas.kernels")
