"""Changing an artifact below its surface, so that a change gets past footer and page headers into the columns.

The file is taken apart (footer, page headers, pages inflated), something in one part is changed, and it is put together
again with sizes, offsets and counts that fit, except where the lie is the change. PURE.
"""

from __future__ import annotations

import importlib.util
import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pyarrow as pa

from protocol.errors import Rejected
from protocol.wire import thrift as parsed
from tests.fuzz.changes import NUMBERS, Plain


def _apart(module: ModuleType) -> ModuleType:
    """Returns a second copy of a module, which the fuzzer does not trace: changes need not slow down as checks do."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location(f"tests.fuzz.{module.__name__.rpartition('.')[2]}", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = copy
    spec.loader.exec_module(copy)
    return copy


thrift: Any = _apart(parsed)
BINARY, I32, I64, STRUCT = thrift.BINARY, thrift.I32, thrift.I64, thrift.STRUCT
Field, Items, read_struct, write_struct = thrift.Field, thrift.Items, thrift.read_struct, thrift.write_struct

MAGIC = b"PAR1"
ZSTD = pa.Codec("zstd")
MOST_INFLATED, MOST_PAGES = 1 << 17, 6
WORDS = (*NUMBERS, 0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000, 0x3F800000, 0x00000001, 0xBF000000)
"""Among the numbers: NaN, both infinities, minus zero, 1.0, the least subnormal."""


ODD_FILE = (Rejected, LookupError, ValueError, TypeError, AttributeError, struct.error, pa.ArrowException, OSError)
"""What taking apart a file that is hardly one may raise; such a file is changed by bytes."""


@dataclass
class Page:
    """A data page: its values as its header counts them, its bytes inflated, and lies about their size."""

    values: int
    payload: bytes
    lie: int = 0
    compressed: bytes | None = None


@dataclass
class Column:
    """A column chunk: its metadata as in the footer, and its pages."""

    meta: dict[int, Field]
    pages: list[Page]


@dataclass
class File:
    """An artifact taken apart."""

    footer: dict[int, Field]
    columns: list[Column]


def change_parquet(data: bytes, chance: random.Random, plain: Plain) -> bytes:
    """Changes one to three parts and puts the file together again; now and then changes bytes alone."""
    if chance.random() < 0.1:
        return plain(data)
    try:
        file = take_apart(data)
        for _ in range(chance.choice((1, 1, 2, 3))):
            chance.choice(CHANGES)(file, chance, plain)
        return put_together(file, chance, plain)
    except ODD_FILE:
        return _framed(data, chance, plain)


def take_apart(data: bytes) -> File:
    """Returns the parts of a file in the pinned layout; raises one of many errors for any other bytes."""
    (size,) = struct.unpack("<I", data[-8:-4])
    footer, _ = read_struct(data[len(data) - 8 - size : -8])
    return File(footer, [_column(data, chunk) for chunk in _group(footer)[1].value.values])


def _group(footer: dict[int, Field]) -> dict[int, Any]:
    return footer[4].value.values[0]  # type: ignore[union-attr,return-value]


def _column(data: bytes, chunk: Any) -> Column:
    meta = dict(chunk[3].value)
    at, pages = meta[9].value, []
    end = at + meta[7].value
    while at < end and len(pages) < 64:
        header, body = read_struct(data, at, depth=2)
        at = body + header[3].value  # type: ignore[operator]
        inflated = min(int(header[2].value), MOST_INFLATED)  # type: ignore[call-overload]
        packed = data[body:at]
        payload = ZSTD.decompress(packed, inflated, asbytes=True) if _is_compressed(meta) else packed
        pages.append(Page(header[5].value[1].value, payload))  # type: ignore[index]
    return Column(meta, pages)


def _is_compressed(meta: dict[int, Field]) -> bool:
    return bool(meta[4].value)


def put_together(file: File, chance: random.Random, plain: Plain) -> bytes:
    """Returns the file of these parts; one time in eight a number or the bytes of the footer lie."""
    out, chunks = bytearray(MAGIC), []
    for column in file.columns:
        start, inflated = len(out), 0
        for page in column.pages:
            header, body = _page(page, _is_compressed(column.meta))
            out += header + body
            inflated += len(header) + len(page.payload)
        sizes = {5: sum(page.values for page in column.pages), 6: inflated, 7: len(out) - start, 9: start}
        meta = column.meta | {number: Field(I64, max(0, value)) for number, value in sizes.items()}
        chunks.append({2: Field(I64, 0), 3: Field(STRUCT, meta)})
    group = _group(file.footer)
    group[1] = Field(group[1].kind, Items(STRUCT, chunks))
    group[2] = Field(I64, sum(chunk[3].value[6].value for chunk in chunks))
    if chance.random() < 0.125:
        _lie(file.footer, chance)
    footer = write_struct(file.footer)
    if chance.random() < 0.125:
        footer = plain(footer)
    return bytes(out) + footer + struct.pack("<I", len(footer)) + MAGIC


def _page(page: Page, compressed: bool) -> tuple[bytes, bytes]:
    body = ZSTD.compress(page.payload, asbytes=True) if compressed else page.payload
    body = body if page.compressed is None else page.compressed
    inner = {1: Field(I32, max(0, page.values)), 2: Field(I32, 0), 3: Field(I32, 3), 4: Field(I32, 3)}
    fields = {
        1: Field(I32, 0),
        2: Field(I32, max(0, len(page.payload) + page.lie)),
        3: Field(I32, len(body)),
        5: Field(STRUCT, inner | ({5: Field(STRUCT, {})} if compressed else {})),
    }
    return write_struct(fields), body


def _lie(value: Any, chance: random.Random) -> None:
    """Exchanges one number somewhere in a struct."""
    fields = value if isinstance(value, dict) else {}
    while fields:
        number = chance.choice(list(fields))
        inner = fields[number].value
        if isinstance(inner, bool) or not isinstance(inner, int | dict | Items):
            return
        if isinstance(inner, int):
            fields[number] = replace(fields[number], value=chance.choice(NUMBERS))
            return
        items = inner.values if isinstance(inner, Items) else [inner]
        fields = chance.choice(items) if items and isinstance(items[0], dict) else {}


def _framed(data: bytes, chance: random.Random, plain: Plain) -> bytes:
    """Changes the bytes of a file that cannot be taken apart, and mends its frame."""
    body = plain(data[4:-8])
    size = min(len(body), chance.choice((200, 400, 900)))
    return MAGIC + body + struct.pack("<I", size) + MAGIC


def _pages(file: File) -> list[Page]:
    return [page for column in file.columns for page in column.pages] or [Page(0, b"")]


def _payload(file: File, chance: random.Random, plain: Plain) -> None:
    page = chance.choice(_pages(file))
    page.payload = plain(page.payload)


def _word(file: File, chance: random.Random, plain: Plain) -> None:
    """One aligned word: a length, a token, a logprob, a size of levels."""
    page = chance.choice(_pages(file))
    at = 4 * chance.randrange(len(page.payload) // 4 + 1)
    word = struct.pack("<I", chance.choice(WORDS))
    page.payload = page.payload[:at] + word + page.payload[at + 4 :]


def _levels(file: File, chance: random.Random, plain: Plain) -> None:
    """Repetition or definition levels as one run of any length."""
    page = chance.choice(_pages(file))
    (size,) = struct.unpack("<I", page.payload[:4].ljust(4, b"\0"))
    run, number = bytearray(), chance.choice((*NUMBERS, page.values)) << 1
    while number >= 0x80:
        run.append(number & 0x7F | 0x80)
        number >>= 7
    run += bytes([number, chance.choice((0, 1, 1, 2, 255))])
    page.payload = struct.pack("<I", len(run)) + bytes(run) + page.payload[4 + size :]


def _count(file: File, chance: random.Random, plain: Plain) -> None:
    page = chance.choice(_pages(file))
    page.values = chance.choice((page.values - 1, page.values + 1, page.values * 2, *NUMBERS))


def _size(file: File, chance: random.Random, plain: Plain) -> None:
    chance.choice(_pages(file)).lie = chance.choice((-4, -1, 1, 4, 64, 1 << 16, 1 << 21, (1 << 31) - 1))


def _zstd(file: File, chance: random.Random, plain: Plain) -> None:
    page = chance.choice(_pages(file))
    page.compressed = plain(ZSTD.compress(page.payload, asbytes=True))


def _bomb(file: File, chance: random.Random, plain: Plain) -> None:
    page = chance.choice(_pages(file))
    page.payload += bytes([chance.choice((0, 0, 1, 255))]) * chance.choice((64, 64, 4096, 1 << 16))


def _rearrange(file: File, chance: random.Random, plain: Plain) -> None:
    """Pages dropped, repeated, halved, or exchanged between columns."""
    column, other = chance.choice(file.columns), chance.choice(file.columns)
    if not column.pages or not other.pages:
        return
    n = chance.randrange(len(column.pages))
    match chance.randrange(4):
        case 0:
            del column.pages[n]
        case 1 if len(column.pages) < MOST_PAGES:
            column.pages[n:n] = [replace(column.pages[n])] * chance.choice((1, 1, 2))
        case 2 if len(column.pages) < MOST_PAGES:
            page, half = column.pages[n], len(column.pages[n].payload) // 2
            rest = Page(page.values - page.values // 2, page.payload[half:])
            column.pages[n : n + 1] = [Page(page.values // 2, page.payload[:half]), rest]
        case _:
            column.pages, other.pages = other.pages, column.pages


def _rows(file: File, chance: random.Random, plain: Plain) -> None:
    rows = chance.choice((0, 1, 2, 3, 4, 5, 6, 64, 4096, 4097, 1 << 31))
    file.footer[3] = Field(I64, rows)
    if chance.random() < 0.8:
        _group(file.footer)[3] = Field(I64, rows)


def _metadata(file: File, chance: random.Random, plain: Plain) -> None:
    pairs = list(file.footer[5].value.values)  # type: ignore[union-attr]
    n, number = chance.randrange(len(pairs)), chance.choice((1, 2, 2, 2))
    text = pairs[n][number].value
    texts = (plain(text), b"", b"0", b"256", b"1" * 78, b"1" * 5000, b"-1", b"00", "\u0665".encode(), text + b"\n")
    match chance.randrange(5):
        case 0:
            del pairs[n]
        case 1:
            pairs.append(pairs[n])
        case _:
            pairs[n] = pairs[n] | {number: Field(BINARY, chance.choice(texts))}
    file.footer[5] = Field(file.footer[5].kind, Items(STRUCT, pairs))


CHANGES: tuple[Callable[[File, random.Random, Plain], None], ...] = (
    _payload,
    _payload,
    _word,
    _word,
    _levels,
    _count,
    _size,
    _zstd,
    _bomb,
    _rearrange,
    _rows,
    _metadata,
)
