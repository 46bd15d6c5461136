"""Parquet in which a table has one encoding: equal tables are equal bytes, and any reader of Parquet opens them.

    PAR1 │ for each column: page header, levels, values │ footer │ u32 LE footer length │ PAR1

    levels  of a list column only: u32 LE size ‖ repetition run ‖ u32 LE size ‖ definition run
    run     varint(groups << 1 | 1) ‖ groups × byte: one bit a level, the least significant first, zeros at the end
    values  PLAIN: i32 or f32 LE; bytes and text as u32 LE length ‖ bytes

One row group, one data page (version 1) for each column, nothing compressed, no statistics, the footer's pairs in the
order given. A list's first element has repetition 0 and the others 1; an empty list is one level of definition 0.

Footer and page headers are Thrift structs (apache/parquet-format, ``parquet.thrift``). The reader takes from them only
what it needs to find the values; it is the caller who writes what was read once more and compares. PURE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Rejected
from protocol.wire.reasons import Reason
from protocol.wire.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Value,
    read_struct,
    write_struct,
    write_varint,
)

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 16 * 1024
"""Ten columns and six pairs take about 1 KiB."""
MAX_PAGE_HEADER_BYTES = 64
CREATED_BY = b"assize"
INT32, FLOAT, BYTE_ARRAY = 1, 4, 6
"""Physical types of Parquet."""
PLAIN, RLE = 0, 3
"""Encodings of Parquet; bit-packed runs are among those of RLE."""
UNCOMPRESSED = 0
_REQUIRED, _REPEATED = 0, 2
_AS_STRING, _AS_LIST = 0, 3
_DTYPES = {INT32: "<i4", FLOAT: "<f4"}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """A column of the schema: its name, its physical type, and if its values are lists of that type, or text."""

    name: str
    physical: int
    listed: bool = True
    text: bool = False

    @property
    def path(self) -> tuple[bytes, ...]:
        """The names from the root of the schema down to the values."""
        return (self.name.encode(), b"list", b"element") if self.listed else (self.name.encode(),)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of all rows one after another, and how many each row has (rows,): 1 in a column without lists."""

    counts: NDArray[np.int64]
    values: NDArray[Any] | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The place of a column's pages in the file, their sizes in bytes, headers included, and the number of levels."""

    kind: ColumnKind
    start: int
    compressed: int
    uncompressed: int
    levels: int


def write(kinds: Sequence[ColumnKind], columns: Sequence[Column], pairs: Iterable[tuple[str, str]]) -> bytes:
    """Returns the file of ``columns``, which have equally many rows, with ``pairs`` in its footer."""
    out, chunks = bytearray(MAGIC), []
    for kind, column in zip(kinds, columns, strict=True):
        levels, payload = _payload(kind, column)
        header = _page_header(levels, len(payload))
        size = len(header) + len(payload)
        chunks.append(ColumnChunk(kind, len(out), size, size, levels))
        out += header + payload
    ours = footer(chunks, len(columns[0].counts), UNCOMPRESSED, pairs)
    return bytes(out) + ours + struct.pack("<I", len(ours)) + MAGIC


def read(
    data: bytes, kinds: Sequence[ColumnKind], max_rows: int, most: Mapping[str, int]
) -> tuple[list[Column], list[tuple[str, str]]]:
    """Returns the columns of a file and the pairs in its footer; arrays are read-only.

    ``most`` bounds the values of a row in each list column. Rows and lists are counted before any value is looked at:
    tens of millions of empty ones fit into a file. Memory stays under a small multiple of ``data`` and ``max_rows``.
    What is returned for bytes that ``write`` did not make is not specified: whoever needs to know writes it again.

    Raises:
        Rejected: no such columns are found (reason SHAPE).
    """
    end = footer_start(data)
    stated, _ = read_struct(data[end:-8])
    at, columns = len(MAGIC), []
    for kind in kinds:
        header, length = read_struct(data[at : at + MAX_PAGE_HEADER_BYTES], depth=2)
        at += length
        size, levels = number(header, 2, I32), number(fields_of(header.get(5)), 1, I32)
        # A value takes at least four bytes; only an empty list takes none, and a row has at most one.
        if size > end - at or levels > size // 4 + max_rows:
            raise malformed("has a page with more values than it can hold")
        columns.append(_column(kind, data[at : at + size], levels, max_rows, most.get(kind.name, 1)))
        at += size
    return columns, key_values(stated)


def malformed(what: str) -> Rejected:
    """Returns the refusal of an artifact that ``what``, with reason SHAPE."""
    return Rejected(f"the artifact {what}", Reason.SHAPE)


def footer_start(data: bytes) -> int:
    """Returns the offset of the footer; raises ``Rejected`` for a file without one."""
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise malformed("is not a Parquet file")
    (footer_bytes,) = struct.unpack("<I", data[-8:-4])
    if not 0 < footer_bytes <= min(MAX_FOOTER_BYTES, len(data) - 12):
        raise malformed(f"has a footer of {footer_bytes} bytes")
    return len(data) - 8 - int(footer_bytes)


def footer(chunks: Sequence[ColumnChunk], rows: int, codec: int, pairs: Iterable[tuple[str, str]] = ()) -> bytes:
    """Returns the FileMetaData of one row group: 1 version, 2 schema, 3 rows, 4 groups, 5 pairs, 6 created by."""
    stored = [{2: Field(I64, 0), 3: Field(STRUCT, _column_metadata(chunk, codec))} for chunk in chunks]
    size = Field(I64, sum(chunk.uncompressed for chunk in chunks))
    group = {1: Field(LIST, Items(STRUCT, stored)), 2: size, 3: Field(I64, rows)}
    held = [{1: Field(BINARY, key.encode()), 2: Field(BINARY, value.encode())} for key, value in pairs]
    elements = schema_elements([chunk.kind for chunk in chunks])
    lists = {2: Field(LIST, Items(STRUCT, elements)), 4: Field(LIST, Items(STRUCT, [group]))}
    fields = lists | {1: Field(I32, 2), 3: Field(I64, rows), 6: Field(BINARY, CREATED_BY)}
    return write_struct(fields | ({5: Field(LIST, Items(STRUCT, held))} if held else {}))


def schema_elements(kinds: Sequence[ColumnKind]) -> list[dict[int, Field]]:
    """Returns the SchemaElements: 1 type, 3 repetition, 4 name, 5 children, 6 converted type."""
    elements = [{4: Field(BINARY, b"schema"), 5: Field(I32, len(kinds))}]
    for kind in kinds:
        name, required = Field(BINARY, kind.path[0]), Field(I32, _REQUIRED)
        leaf = {1: Field(I32, kind.physical), 3: required, 4: Field(BINARY, kind.path[-1])}
        if kind.listed:
            elements.append({3: required, 4: name, 5: Field(I32, 1), 6: Field(I32, _AS_LIST)})
            elements.append({3: Field(I32, _REPEATED), 4: Field(BINARY, b"list"), 5: Field(I32, 1)})
        elements.append(leaf | ({6: Field(I32, _AS_STRING)} if kind.text else {}))
    return elements


def key_values(stated: Mapping[int, Field]) -> list[tuple[str, str]]:
    """Returns the pairs of a footer, in their order."""
    return [(_text(fields, 1), _text(fields, 2)) for fields in map(fields_of, items(stated, 5, STRUCT))]


def items(fields: Mapping[int, Field], at: int, kind: int) -> list[Value]:
    """Returns the elements of a list of ``kind``; raises ``Rejected`` for anything else."""
    field = fields.get(at)
    if field is None or not isinstance(field.value, Items) or (field.value.kind != kind and field.value.values):
        raise malformed("has a footer outside the pinned layout")
    return list(field.value.values)


def fields_of(value: Value | Field | None) -> Mapping[int, Field]:
    """Returns a struct's fields; raises ``Rejected`` for anything else."""
    value = value.value if isinstance(value, Field) else value
    if not isinstance(value, Mapping):
        raise malformed("has a header outside the pinned layout")
    return value


def number(fields: Mapping[int, Field], at: int, kind: int) -> int:
    """Returns a number of ``kind``; raises ``Rejected`` for anything else."""
    field = fields.get(at)
    if field is None or field.kind != kind or not isinstance(field.value, int):
        raise malformed("has a header outside the pinned layout")
    return field.value


def _text(fields: Mapping[int, Field], at: int) -> str:
    value = fields.get(at, Field(BINARY, b"")).value
    if not isinstance(value, bytes) or not value.isascii():
        raise malformed("has metadata that is not text")
    return value.decode()


def _page_header(levels: int, size: int) -> bytes:
    """Returns a PageHeader (1 type, 2 and 3 sizes) with a DataPageHeader (1 levels, 2 encoding, 3, 4 of levels)."""
    inner = {1: Field(I32, levels), 2: Field(I32, PLAIN), 3: Field(I32, RLE), 4: Field(I32, RLE)}
    return write_struct({1: Field(I32, 0), 2: Field(I32, size), 3: Field(I32, size), 5: Field(STRUCT, inner)})


def _column_metadata(chunk: ColumnChunk, codec: int) -> dict[int, Field]:
    lists = {2: Field(LIST, Items(I32, [RLE, PLAIN])), 3: Field(LIST, Items(BINARY, chunk.kind.path))}
    sizes = {5: chunk.levels, 6: chunk.uncompressed, 7: chunk.compressed, 9: chunk.start}
    kinds = {1: Field(I32, chunk.kind.physical), 4: Field(I32, codec)}
    return lists | kinds | {at: Field(I64, size) for at, size in sizes.items()}


def _payload(kind: ColumnKind, column: Column) -> tuple[int, bytes]:
    """Returns the number of levels, and the bytes of levels and values."""
    values = _plain(kind, column.values)
    if not kind.listed:
        return len(column.counts), values
    taken = np.maximum(column.counts, 1)
    levels = int(taken.sum())
    repetition, definition = np.ones(levels, np.uint8), np.repeat(column.counts > 0, taken)
    repetition[np.cumsum(taken) - taken] = 0
    runs = (_run_head(levels) + np.packbits(bits, bitorder="little").tobytes() for bits in (repetition, definition))
    return levels, b"".join(runs) + values


def _plain(kind: ColumnKind, held: NDArray[Any] | Sequence[bytes]) -> bytes:
    if kind.physical != BYTE_ARRAY:
        return np.asarray(held, _DTYPES[kind.physical]).tobytes()
    out = bytearray()
    for value in held:
        out += len(value).to_bytes(4, "little")
        out += value
    return bytes(out)


def _run_head(levels: int) -> bytes:
    """Returns the size of a run of so many levels, and the varint before its bits."""
    groups = -(-levels // 8)
    head = write_varint(groups << 1 | 1)
    return struct.pack("<I", len(head) + groups) + head


def _column(kind: ColumnKind, payload: bytes, levels: int, max_rows: int, most: int) -> Column:
    at = 0
    counts: NDArray[np.int64] = np.ones(levels, np.int64)
    if kind.listed:
        head, groups = len(_run_head(levels)), -(-levels // 8)
        at = 2 * (head + groups)
        if at > len(payload):
            raise malformed("has a page that ends too early")
        repetition, definition = (
            np.unpackbits(np.frombuffer(payload, np.uint8, groups, start), bitorder="little")[:levels]
            for start in (head, 2 * head + groups)
        )
        starts = np.flatnonzero(repetition == 0)
        counts = (np.diff(starts, append=levels) * definition[starts]).astype(np.int64)
    if len(counts) > max_rows:
        raise malformed(f"has {len(counts)} rows, more than {max_rows}")
    if (longest := counts.max(initial=0)) > most:
        raise malformed(f"has a row with {longest} {kind.name}, more than {most}")
    total, values = int(counts.sum()), payload[at:]  # a copy, since values of a page need not be aligned
    if kind.physical == BYTE_ARRAY:
        return Column(counts, _byte_arrays(values, total))
    if len(values) != 4 * total:
        raise malformed("has a page with another number of values than its levels say")
    return Column(counts, np.frombuffer(values, _DTYPES[kind.physical]))


def _byte_arrays(data: bytes, total: int) -> list[bytes]:
    found, at = [], 0
    for _ in range(total):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            raise malformed("has a page that ends too early")
        found.append(data[at + 4 : end])
        at = end
    return found
