"""The pinned Parquet layout of a run's tasks, proved from headers alone before any column is read.

    PAR1 │ column chunk 0: (page header, zstd page)… │ chunk 1 … │ footer │ u32 LE footer length │ PAR1

A Parquet footer is a claim: pages may hold more values, or inflate to more bytes, than it says; dictionaries and run
lengths make gigabytes out of a few bytes; and native readers abort the whole process on some footers. So a compressed
file has one layout only: one row group, PLAIN values, no dictionary, no statistics, data pages of version 1, zstd. A
strict reader of our own reads the footer, walks the headers of all pages and adds up the memory they can allocate. Only
then does the library see the pages, under a *new footer* that states what was proved. Artifacts are not compressed and
need none of this (``protocol.wire.canonical_parquet``).

Footer and page headers are Thrift structs (apache/parquet-format, ``parquet.thrift``). Of a page header only these
fields are allowed; in a footer, relevant fields are checked and the others dropped:

    PageHeader      1 type = 0 (data) · 2 uncompressed size · 3 compressed size · 5 DataPageHeader
    DataPageHeader  1 number of values · 2 encoding = 0 (PLAIN) · 3, 4 level encodings = 3 (RLE) · 5 {}

PURE.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.errors import Unavailable
from protocol.wire.canonical_parquet import (
    BYTE_ARRAY,
    FLOAT,
    INT32,
    MAGIC,
    PLAIN,
    RLE,
    ColumnChunk,
    ColumnKind,
    fields_of,
    footer,
    footer_start,
    items,
    key_values,
    malformed,
    number,
    schema_elements,
)
from protocol.wire.thrift import BINARY, I32, I64, STRUCT, Field, read_struct

MAX_PAGES_PER_COLUMN = 1024
_DATA_PAGE, _ZSTD = 0, 6


@dataclass(frozen=True, slots=True)
class _PageHeader:
    """One page header: sizes in bytes, and the offset of the page's compressed bytes."""

    uncompressed: int
    compressed: int
    values: int
    body: int


def write(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """Returns ``table`` in the pinned layout, with ``metadata`` as the footer's key-value pairs."""
    sink = pa.BufferOutputStream()
    layout = {"use_dictionary": False, "write_statistics": False, "store_schema": False, "data_page_version": "1.0"}
    with pq.ParquetWriter(sink, table.schema, compression="zstd", **layout) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(dict(metadata))
    return bytes(sink.getvalue())


def read(
    data: bytes, schema: pa.Schema, max_rows: int, max_file_bytes: int, max_uncompressed_bytes: int
) -> tuple[pa.Table, dict[str, str]]:
    """Returns the table and the footer's key-value pairs.

    ``schema`` has fields of int32, float32, binary or string, or lists of those, none nullable. For any bytes, memory
    stays under a small multiple of ``max_uncompressed_bytes``.

    Raises:
        Rejected: The file is not in the pinned layout (reason SHAPE).
        Unavailable: This machine has too little memory.
    """
    if len(data) > max_file_bytes:
        raise malformed(f"has {len(data)} bytes, more than the {max_file_bytes} allowed")
    pages_end = footer_start(data)
    stated, _ = read_struct(data[pages_end:-8])
    rows, chunks = _check_footer(stated, schema, max_rows)
    _check_pages(data, pages_end, chunks, rows, max_uncompressed_bytes)
    ours = footer(chunks, rows, _ZSTD)
    proved = b"".join((data[:pages_end], ours, struct.pack("<I", len(ours)), MAGIC))
    try:
        table = pq.ParquetFile(pa.BufferReader(proved), pre_buffer=False).read_row_group(0, use_threads=False)
        table.validate(full=True)
    except MemoryError as error:  # pyarrow's is an ArrowException too; the bytes proved above fit any validator
        raise Unavailable("too little memory to read the tasks: give this machine more") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise malformed(f"has pages that cannot be read ({type(error).__name__})") from error
    if table.num_rows != rows or not table.schema.equals(schema):
        raise malformed("has pages that disagree with its footer")
    return table, _pairs(stated)


def _check_footer(stated: Mapping[int, Field], schema: pa.Schema, max_rows: int) -> tuple[int, list[ColumnChunk]]:
    kinds = [_kind(field) for field in schema]
    known = [
        {at: field for at, field in fields_of(element).items() if at in (1, 3, 4, 5, 6)}
        for element in items(stated, 2, STRUCT)
    ]
    if known[1:] != schema_elements(kinds)[1:]:  # the root's name and repetition carry no meaning
        raise malformed("has another schema than the pinned one")
    groups = items(stated, 4, STRUCT)
    if len(groups) != 1:
        raise malformed(f"has {len(groups)} row groups instead of 1")
    group, rows = fields_of(groups[0]), number(stated, 3, I64)
    if not 0 < rows <= max_rows or number(group, 3, I64) != rows:
        raise malformed(f"has {rows} rows, not 1 to {max_rows}")
    chunks = items(group, 1, STRUCT)
    if len(chunks) != len(kinds):
        raise malformed("has another number of columns than its schema")
    return rows, [_chunk(fields_of(chunk), kind) for chunk, kind in zip(chunks, kinds, strict=True)]


def _chunk(chunk: Mapping[int, Field], kind: ColumnKind) -> ColumnChunk:
    """Reads a ColumnChunk (1 file path, 3 ColumnMetaData, 8 and 9 encryption), in which only 3 is allowed."""
    meta = fields_of(chunk.get(3))
    stated = (number(meta, 1, I32), tuple(items(meta, 3, BINARY)), number(meta, 4, I32))
    if {1, 8, 9} & set(chunk) or stated != (kind.physical, kind.path, _ZSTD) or 11 in meta:
        raise malformed("stores a column in another layout than the pinned one")
    return ColumnChunk(kind, *(number(meta, at, I64) for at in (9, 7, 6, 5)))


def _check_pages(
    data: bytes, pages_end: int, chunks: list[ColumnChunk], rows: int, max_uncompressed_bytes: int
) -> None:
    """Walks the pages of every column and bounds the memory that reading them can allocate."""
    total = 0
    for chunk in chunks:
        pages = _pages(data, pages_end, chunk)
        total += sum(page.uncompressed for page in pages)
        if total > max_uncompressed_bytes:
            raise malformed(f"inflates to more than {max_uncompressed_bytes} bytes")
        # A value takes at least four bytes; only an empty list takes none, and a row has at most one.
        if any(page.values > page.uncompressed // 4 + rows for page in pages):
            raise malformed("has a page with more values than it can hold")
        if sum(page.values for page in pages) != chunk.levels:
            raise malformed("has pages that disagree with its footer")


def _pages(data: bytes, pages_end: int, chunk: ColumnChunk) -> list[_PageHeader]:
    at, end = chunk.start, chunk.start + chunk.compressed
    if at < len(MAGIC) or end > pages_end:
        raise malformed("places a column outside the file")
    pages: list[_PageHeader] = []
    while at < end:
        page = _page(data, at)
        at = page.body + page.compressed
        pages.append(page)
        if at > end or len(pages) > MAX_PAGES_PER_COLUMN:
            raise malformed("has pages that do not fit their column")
    return pages


def _page(data: bytes, at: int) -> _PageHeader:
    header, body = read_struct(data, at, depth=2)
    if set(header) != {1, 2, 3, 5} or number(header, 1, I32) != _DATA_PAGE:
        raise malformed("has a page header outside the pinned layout")
    inner = fields_of(header[5])
    if set(inner) != {1, 2, 3, 4, 5} or inner[5] != Field(STRUCT, {}):
        raise malformed("has a page header outside the pinned layout")
    if [number(inner, at, I32) for at in (2, 3, 4)] != [PLAIN, RLE, RLE]:
        raise malformed("has a page in another encoding than the pinned one")
    return _PageHeader(number(header, 2, I32), number(header, 3, I32), number(inner, 1, I32), body)


def _pairs(stated: Mapping[int, Field]) -> dict[str, str]:
    pairs = key_values(stated)
    if len(dict(pairs)) < len(pairs):
        raise malformed("has metadata twice under one name")
    return dict(pairs)


def _kind(field: pa.Field) -> ColumnKind:
    listed = pa.types.is_list(field.type)
    held = field.type.value_type if listed else field.type
    physical = {pa.int32(): INT32, pa.float32(): FLOAT, pa.binary(): BYTE_ARRAY, pa.string(): BYTE_ARRAY}[held]
    return ColumnKind(field.name, physical, listed, pa.types.is_string(field.type))
