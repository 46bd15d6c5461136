"""The pinned Parquet layout, proved from headers alone before any column is read.

    PAR1 │ column chunk 0: (page header, zstd page)… │ chunk 1 … │ footer │ u32 LE footer length │ PAR1

A Parquet footer is a claim: pages may hold more values, or inflate to more bytes, than it says, and dictionaries and
run lengths make gigabytes out of a few bytes. So an artifact uses one layout only: one row group, PLAIN values, no
dictionary, no statistics, data pages of version 1, zstd. Then a page's own header bounds all the memory its reading can
take, and this module adds those bounds up. Page headers are Thrift compact structs (apache/parquet-format,
``parquet.thrift``), of which only the fields drawn here are allowed:

    PageHeader      1 type = 0 (data) · 2 uncompressed size · 3 compressed size · 5 DataPageHeader
    DataPageHeader  1 number of values · 2 encoding = 0 (PLAIN) · 3, 4 level encodings = 3 (RLE) · 5 {}

PURE.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.errors import Rejected
from protocol.wire.reasons import Reason

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 16 * 1024
"""Five columns and five metadata entries take about 1.5 KiB; a bound this small also bounds the schema's depth."""
MAX_PAGES_PER_COLUMN = 1024
_THRIFT_STOP, _THRIFT_I32, _THRIFT_STRUCT = 0, 5, 12
_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3


@dataclass(frozen=True, slots=True)
class _Page:
    """One page header: sizes in bytes, and where the page's compressed bytes begin."""

    uncompressed: int
    compressed: int
    values: int
    body: int


def write(table: pa.Table, metadata: dict[str, str]) -> bytes:
    """Returns ``table`` in the pinned layout, with ``metadata`` as the footer's key-value pairs."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        data_page_version="1.0",
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(metadata)
    return bytes(sink.getvalue())


def read(
    data: bytes, schema: pa.Schema, max_rows: int, max_file_bytes: int, max_uncompressed_bytes: int
) -> tuple[pa.Table, dict[str, str]]:
    """Returns the table and the footer's key-value pairs; raises `Rejected` (SHAPE) for anything but the pinned layout.

    Memory stays under a small multiple of ``max_uncompressed_bytes`` whatever the bytes are.
    """
    _check_frame(data, max_file_bytes)
    try:
        file = pq.ParquetFile(
            pa.BufferReader(data),
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=1024,
            pre_buffer=False,
        )
        metadata = _check_footer(file.metadata, schema, max_rows)
        _check_pages(data, file.metadata, max_uncompressed_bytes)
        table = file.read_row_group(0, use_threads=False)
        table.validate(full=True)
    except Rejected:
        raise
    except Exception as error:  # whatever a parser makes of hostile bytes is the bytes' fault
        raise _bad(f"is not readable as Parquet ({type(error).__name__})") from error
    if table.num_rows != file.metadata.num_rows:
        raise _bad("holds another number of rows than its footer says")
    return table, metadata


def _bad(what: str) -> Rejected:
    return Rejected(f"the artifact {what}", Reason.SHAPE)


def _check_frame(data: bytes, max_file_bytes: int) -> None:
    if len(data) > max_file_bytes:
        raise _bad(f"has {len(data)} bytes, more than the {max_file_bytes} allowed")
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise _bad("is not a Parquet file")
    (footer_bytes,) = struct.unpack("<I", data[-8:-4])
    if not 0 < footer_bytes <= min(MAX_FOOTER_BYTES, len(data) - 12):
        raise _bad(f"has a footer of {footer_bytes} bytes")
    # An embedded Arrow schema would be parsed before it could be refused.
    if b"ARROW:schema" in data[-8 - footer_bytes : -8]:
        raise _bad("embeds an Arrow schema")


def _check_footer(metadata: Any, schema: pa.Schema, max_rows: int) -> dict[str, str]:
    if metadata.num_row_groups != 1:
        raise _bad(f"has {metadata.num_row_groups} row groups instead of 1")
    if not 0 < metadata.num_rows <= max_rows or metadata.row_group(0).num_rows != metadata.num_rows:
        raise _bad(f"has {metadata.num_rows} rows, not 1 to {max_rows}")
    if not metadata.schema.to_arrow_schema().remove_metadata().equals(schema):
        raise _bad("has another schema than the pinned one")
    return {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}


def _check_pages(data: bytes, metadata: Any, max_uncompressed_bytes: int) -> None:
    """Walks the pages of every column chunk and bounds what reading them can allocate."""
    group, total = metadata.row_group(0), 0
    for index in range(group.num_columns):
        column = group.column(index)
        if column.compression != "ZSTD" or column.has_dictionary_page or column.file_path:
            raise _bad("stores a column otherwise than in the pinned layout")
        pages = _pages(data, column.data_page_offset, column.total_compressed_size)
        total += sum(page.uncompressed for page in pages)
        if total > max_uncompressed_bytes:
            raise _bad(f"inflates to more than {max_uncompressed_bytes} bytes")
        # A value takes at least four bytes; only an empty list takes none, and there is at most one a row.
        if any(page.values > page.uncompressed // 4 + metadata.num_rows for page in pages):
            raise _bad("has a page with more values than it can hold")
        if sum(page.values for page in pages) != column.num_values:
            raise _bad("has pages that disagree with its footer")


def _pages(data: bytes, start: int, size: int) -> list[_Page]:
    end = start + size
    if start < len(MAGIC) or size < 0 or end > len(data) - 8:
        raise _bad("places a column outside the file")
    pages: list[_Page] = []
    while start < end:
        page = _page(data, start)
        start = page.body + page.compressed
        pages.append(page)
        if start > end or len(pages) > MAX_PAGES_PER_COLUMN:
            raise _bad("has pages that do not fit their column")
    return pages


def _page(data: bytes, at: int) -> _Page:
    header, body = _thrift_struct(data, at, depth=2)
    inner = header.get(5)
    if set(header) != {1, 2, 3, 5} or not isinstance(inner, dict) or set(inner) != {1, 2, 3, 4, 5}:
        raise _bad("has a page header outside the pinned layout")
    if header[1] != _DATA_PAGE or (inner[2], inner[3], inner[4], inner[5]) != (_PLAIN, _RLE, _RLE, {}):
        raise _bad("has a page encoded otherwise than in the pinned layout")
    uncompressed, compressed, values = header[2], header[3], inner[1]
    if not (isinstance(uncompressed, int) and isinstance(compressed, int) and isinstance(values, int)):
        raise _bad("has a page header outside the pinned layout")
    return _Page(uncompressed, compressed, values, body)


def _thrift_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Reads a compact struct of non-negative i32 fields and structs, ``depth`` deep; returns it and its end."""
    fields: dict[int, Any] = {}
    field = 0
    while True:
        head = _byte(data, at)
        at += 1
        if head == _THRIFT_STOP:
            return fields, at
        step, kind = head >> 4, head & 15
        field += step
        if step == 0:
            raise _bad("has a page header outside the pinned layout")
        if kind == _THRIFT_I32:
            fields[field], at = _thrift_i32(data, at)
        elif kind == _THRIFT_STRUCT and depth:
            fields[field], at = _thrift_struct(data, at, depth=depth - 1)
        else:
            raise _bad("has a page header outside the pinned layout")


def _thrift_i32(data: bytes, at: int) -> tuple[int, int]:
    """Reads a zigzag varint of at most five bytes, refusing negative values."""
    value = 0
    for shift in range(0, 35, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if byte >= 0x80 or value & 1 or value >> 1 > 0x7FFFFFFF:
        raise _bad("has a page header with a number out of range")
    return value >> 1, at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _bad("ends inside a page header")
    return data[at]
