"""The pinned Parquet layout, proved from headers alone before any column is read.

    PAR1 │ column chunk 0: (page header, zstd page)… │ chunk 1 … │ footer │ u32 LE footer length │ PAR1

A Parquet footer is a claim: pages may hold more values, or inflate to more bytes, than it says; dictionaries and run
lengths make gigabytes out of a few bytes; and native readers abort the whole process on some footers. So an artifact
uses one layout only: one row group, PLAIN values, no dictionary, no statistics, data pages of version 1, zstd. A strict
reader of our own reads the footer, walks the headers of all pages and adds up the memory they can allocate. Only then
does the library see the pages, under a *new footer* that states what was proved.

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

from protocol.errors import Rejected, Unavailable
from protocol.wire.reasons import Reason
from protocol.wire.thrift import BINARY, I32, I64, LIST, STRUCT, Field, Items, Value, read_struct, write_struct

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 16 * 1024
"""Five columns and five metadata entries take about 1 KiB."""
MAX_PAGES_PER_COLUMN = 1024
_DATA_PAGE, _PLAIN, _RLE, _ZSTD = 0, 0, 3, 6
_REQUIRED, _REPEATED = 0, 2
_AS_STRING, _AS_LIST = 0, 3


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its path in the schema, its physical type, the place of its pages, and the number of their values."""

    path: tuple[bytes, ...]
    physical: int
    start: int
    compressed: int
    uncompressed: int
    values: int


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
    pages_end = _check_frame(data, max_file_bytes)
    footer, _ = read_struct(data[pages_end:-8])
    rows, columns = _check_footer(footer, schema, max_rows)
    _check_pages(data, pages_end, columns, rows, max_uncompressed_bytes)
    ours = _footer(schema, rows, columns)
    proved = b"".join((data[:pages_end], ours, struct.pack("<I", len(ours)), MAGIC))
    try:
        table = pq.ParquetFile(pa.BufferReader(proved), pre_buffer=False).read_row_group(0, use_threads=False)
        table.validate(full=True)
    except MemoryError as error:  # pyarrow's is an ArrowException too; the bytes proved above fit any validator
        raise Unavailable("too little memory to read an artifact: abstain") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise malformed(f"has pages that cannot be read ({type(error).__name__})") from error
    if table.num_rows != rows or not table.schema.equals(schema):
        raise malformed("has pages that disagree with its footer")
    return table, _key_values(footer)


def malformed(what: str) -> Rejected:
    """Returns the refusal of an artifact that ``what``, with reason SHAPE."""
    return Rejected(f"the artifact {what}", Reason.SHAPE)


def _check_frame(data: bytes, max_file_bytes: int) -> int:
    """Returns the offset of the footer."""
    if len(data) > max_file_bytes:
        raise malformed(f"has {len(data)} bytes, more than the {max_file_bytes} allowed")
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise malformed("is not a Parquet file")
    (footer_bytes,) = struct.unpack("<I", data[-8:-4])
    if not 0 < footer_bytes <= min(MAX_FOOTER_BYTES, len(data) - 12):
        raise malformed(f"has a footer of {footer_bytes} bytes")
    return len(data) - 8 - int(footer_bytes)


def _check_footer(footer: Mapping[int, Field], schema: pa.Schema, max_rows: int) -> tuple[int, list[_Column]]:
    elements = _items(footer, 2, STRUCT)
    ours = _schema(schema)
    known = [
        {number: field for number, field in _struct(element).items() if number in (1, 3, 4, 5, 6)}
        for element in elements
    ]
    if known[1:] != ours[1:]:  # the root's name and repetition carry no meaning
        raise malformed("has another schema than the pinned one")
    groups = _items(footer, 4, STRUCT)
    if len(groups) != 1:
        raise malformed(f"has {len(groups)} row groups instead of 1")
    group, rows = _struct(groups[0]), _int(footer, 3, I64)
    if not 0 < rows <= max_rows or _int(group, 3, I64) != rows:
        raise malformed(f"has {rows} rows, not 1 to {max_rows}")
    chunks = _items(group, 1, STRUCT)
    if len(chunks) != len(schema):
        raise malformed("has another number of columns than its schema")
    return rows, [_column(_struct(chunk), field) for chunk, field in zip(chunks, schema, strict=True)]


def _column(chunk: Mapping[int, Field], field: pa.Field) -> _Column:
    """Reads a ColumnChunk (1 file path, 3 ColumnMetaData, 8 and 9 encryption), in which only 3 is allowed."""
    stored, (path, physical) = chunk.get(3), _column_type(field)
    if stored is None or stored.kind != STRUCT or {1, 8, 9} & set(chunk):
        raise malformed("stores a column in another layout than the pinned one")
    meta = _struct(stored.value)
    stated = (_int(meta, 1, I32), tuple(_items(meta, 3, BINARY)), _int(meta, 4, I32))
    if stated != (physical, path, _ZSTD) or 11 in meta:
        raise malformed("stores a column in another layout than the pinned one")
    start, compressed, uncompressed, values = (_int(meta, number, I64) for number in (9, 7, 6, 5))
    return _Column(path, physical, start, compressed, uncompressed, values)


def _check_pages(data: bytes, pages_end: int, columns: list[_Column], rows: int, max_uncompressed_bytes: int) -> None:
    """Walks the pages of every column and bounds the memory that reading them can allocate."""
    total = 0
    for column in columns:
        pages = _pages(data, pages_end, column)
        total += sum(page.uncompressed for page in pages)
        if total > max_uncompressed_bytes:
            raise malformed(f"inflates to more than {max_uncompressed_bytes} bytes")
        # A value takes at least four bytes; only an empty list takes none, and a row has at most one.
        if any(page.values > page.uncompressed // 4 + rows for page in pages):
            raise malformed("has a page with more values than it can hold")
        if sum(page.values for page in pages) != column.values:
            raise malformed("has pages that disagree with its footer")


def _pages(data: bytes, pages_end: int, column: _Column) -> list[_PageHeader]:
    at, end = column.start, column.start + column.compressed
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
    if set(header) != {1, 2, 3, 5} or header[5].kind != STRUCT or _int(header, 1, I32) != _DATA_PAGE:
        raise malformed("has a page header outside the pinned layout")
    inner = _struct(header[5].value)
    if set(inner) != {1, 2, 3, 4, 5} or inner[5] != Field(STRUCT, {}):
        raise malformed("has a page header outside the pinned layout")
    if [_int(inner, number, I32) for number in (2, 3, 4)] != [_PLAIN, _RLE, _RLE]:
        raise malformed("has a page in another encoding than the pinned one")
    return _PageHeader(_int(header, 2, I32), _int(header, 3, I32), _int(inner, 1, I32), body)


def _key_values(footer: Mapping[int, Field]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in _items(footer, 5, STRUCT):
        key, value = (_struct(item).get(number, Field(BINARY, b"")).value for number in (1, 2))
        if not isinstance(key, bytes) or not isinstance(value, bytes) or not (key + value).isascii():
            raise malformed("has metadata that is not text")
        if key.decode() in pairs:
            raise malformed("has metadata twice under one name")
        pairs[key.decode()] = value.decode()
    return pairs


def _items(fields: Mapping[int, Field], number: int, kind: int) -> list[Value]:
    field = fields.get(number)
    if field is None or not isinstance(field.value, Items) or (field.value.kind != kind and field.value.values):
        raise malformed("has a footer outside the pinned layout")
    return list(field.value.values)


def _struct(value: Value) -> Mapping[int, Field]:
    if not isinstance(value, Mapping):
        raise malformed("has a footer outside the pinned layout")
    return value


def _int(fields: Mapping[int, Field], number: int, kind: int) -> int:
    field = fields.get(number)
    if field is None or field.kind != kind or not isinstance(field.value, int):
        raise malformed("has a header outside the pinned layout")
    return field.value


def _column_type(field: pa.Field) -> tuple[tuple[bytes, ...], int]:
    """Returns the path of a column in the schema and its physical type (1 int32, 4 float, 6 byte array)."""
    listed = pa.types.is_list(field.type)
    path = (field.name.encode(), b"list", b"element") if listed else (field.name.encode(),)
    kind = field.type.value_type if listed else field.type
    return path, {pa.int32(): 1, pa.float32(): 4, pa.binary(): 6, pa.string(): 6}[kind]


def _schema(schema: pa.Schema) -> list[dict[int, Field]]:
    """SchemaElements: 1 type, 3 repetition, 4 name, 5 children, 6 converted type."""
    elements = [{4: Field(BINARY, b"schema"), 5: Field(I32, len(schema))}]
    for field in schema:
        path, physical = _column_type(field)
        name, required = Field(BINARY, path[0]), Field(I32, _REQUIRED)
        leaf = {1: Field(I32, physical), 3: required, 4: Field(BINARY, path[-1])}
        if pa.types.is_list(field.type):
            elements.append({3: required, 4: name, 5: Field(I32, 1), 6: Field(I32, _AS_LIST)})
            elements.append({3: Field(I32, _REPEATED), 4: Field(BINARY, b"list"), 5: Field(I32, 1)})
        elements.append(leaf | ({6: Field(I32, _AS_STRING)} if pa.types.is_string(field.type) else {}))
    return elements


def _footer(schema: pa.Schema, rows: int, columns: list[_Column]) -> bytes:
    """Returns a footer that states only what was proved."""
    chunks = [{2: Field(I64, 0), 3: Field(STRUCT, _column_metadata(column))} for column in columns]
    size = Field(I64, sum(column.uncompressed for column in columns))
    group = {1: Field(LIST, Items(STRUCT, chunks)), 2: size, 3: Field(I64, rows)}
    lists = {2: Field(LIST, Items(STRUCT, _schema(schema))), 4: Field(LIST, Items(STRUCT, [group]))}
    return write_struct(lists | {1: Field(I32, 2), 3: Field(I64, rows), 6: Field(BINARY, b"assize")})


def _column_metadata(column: _Column) -> dict[int, Field]:
    lists = {2: Field(LIST, Items(I32, [_RLE, _PLAIN])), 3: Field(LIST, Items(BINARY, column.path))}
    sizes = {5: column.values, 6: column.uncompressed, 7: column.compressed, 9: column.start}
    kinds = {1: Field(I32, column.physical), 4: Field(I32, _ZSTD)}
    return lists | kinds | {number: Field(I64, size) for number, size in sizes.items()}
