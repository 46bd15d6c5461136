"""The subset of Thrift's compact encoding that a Parquet footer needs, with a strict reader.

    struct   (field delta << 4 │ kind) value … 0x00       fields ascend; a delta of 1 to 15, no long form
    i16 i32 i64   zigzag varint, refused where negative
    binary   varint length, bytes                         list   (size << 4 │ kind) elements…, size 15: varint follows

Kinds: 1 true, 2 false, 3 i8, 4 i16, 5 i32, 6 i64, 8 binary, 9 list, 12 struct; others are refused. A value is read as a
`Field`, which keeps its kind. Source: the Thrift compact protocol specification. PURE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from protocol.errors import Rejected
from protocol.wire.reasons import Reason

TRUE, FALSE, I8, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12
_BITS = {I16: 15, I32: 31, I64: 63}
MAX_DEPTH = 8

Value = Union[bool, int, bytes, "Items", Mapping[int, "Field"]]


@dataclass(frozen=True, slots=True)
class Field:
    """A value and the kind it is encoded as."""

    kind: int
    value: Value


@dataclass(frozen=True, slots=True)
class Items:
    """A list, and the kind of its elements."""

    kind: int
    values: Sequence[Value]


def read_struct(data: bytes, at: int = 0, depth: int = MAX_DEPTH) -> tuple[dict[int, Field], int]:
    """Returns the struct at ``at`` and the offset behind it; raises `Rejected` (SHAPE) for any other encoding."""
    fields: dict[int, Field] = {}
    number = 0
    while True:
        head = _byte(data, at)
        at += 1
        if head == 0:
            return fields, at
        if head >> 4 == 0:
            raise _bad("numbers its fields in the long form")
        number += head >> 4
        value, at = _read(data, at, head & 15, depth)
        fields[number] = Field(head & 15, value)


def write_struct(fields: Mapping[int, Field]) -> bytes:
    """Returns the bytes of a struct; consecutive field numbers must be at most 15 apart."""
    out, last = bytearray(), 0
    for number in sorted(fields):
        field = fields[number]
        out.append((number - last) << 4 | field.kind)
        out += _write(field.kind, field.value)
        last = number
    return bytes(out) + b"\x00"


def _bad(what: str) -> Rejected:
    return Rejected(f"the artifact has a header that {what}", Reason.SHAPE)


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _bad("ends too early")
    return data[at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _bad("holds a number out of range")


def _read(data: bytes, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == I8:
        return _byte(data, at), at + 1
    if kind in _BITS:
        zigzag, at = _varint(data, at)
        if zigzag & 1 or zigzag >> 1 >> _BITS[kind]:
            raise _bad("holds a number out of range")
        return zigzag >> 1, at
    if kind == BINARY:
        size, at = _varint(data, at)
        if size > len(data) - at:
            raise _bad("ends too early")
        return data[at : at + size], at + size
    if depth == 0 or kind not in (LIST, STRUCT):
        raise _bad("is nested too deeply, or has a value of another kind than Parquet's")
    return read_struct(data, at, depth - 1) if kind == STRUCT else _read_list(data, at, depth - 1)


def _read_list(data: bytes, at: int, depth: int) -> tuple[Items, int]:
    head = _byte(data, at)
    size, kind, at = head >> 4, head & 15, at + 1
    if size == 15:
        size, at = _varint(data, at)
    if kind in (TRUE, FALSE) or size > len(data) - at:
        raise _bad("lists more than it holds")
    values: list[Value] = []
    for _ in range(size):
        value, at = _read(data, at, kind, depth)
        values.append(value)
    return Items(kind, values), at


def _write(kind: int, value: Value) -> bytes:
    if isinstance(value, Items):
        head = write_varint(len(value.values)) if len(value.values) >= 15 else b""
        size = min(len(value.values), 15)
        return bytes([size << 4 | value.kind]) + head + b"".join(_write(value.kind, item) for item in value.values)
    if isinstance(value, Mapping):
        return write_struct(value)
    if isinstance(value, bytes):
        return write_varint(len(value)) + value
    return b"" if kind in (TRUE, FALSE) else write_varint(value << 1)


def write_varint(value: int) -> bytes:
    """Returns a number in as few bytes as it takes, seven bits in each, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])
