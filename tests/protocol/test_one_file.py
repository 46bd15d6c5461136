"""An artifact has one file: 10,000 other encodings of it are refused, or are the one file of another artifact."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.errors import Rejected
from protocol.wire.canonical_parquet import MAGIC, footer_start
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, Rollout, decode, encode, rollouts_root
from tests.fuzz.changes import shuffled
from tests.fuzz.changing_parquet import change_parquet, put_together, take_apart, thrift

BINARY, I32, I64, LIST, STRUCT, TRUE = thrift.BINARY, thrift.I32, thrift.I64, thrift.LIST, thrift.STRUCT, thrift.TRUE
Field, Items, read_struct, write_struct = thrift.Field, thrift.Items, thrift.read_struct, thrift.write_struct

ROUNDS = "0x" + "22" * 20
MUTATIONS = 10_000


def an_artifact() -> Artifact:
    rng = np.random.default_rng(7)
    made = (
        Rollout(rng.integers(0, 50, 4), rng.integers(0, 50, n), -rng.random(n), (rng.bytes(258),), "stop")
        for n in (9, 3)
    )
    return Artifact(5, 3, 7, b"\x01" * 32, tuple(made), b"\x02" * 32)


ARTIFACT = an_artifact()
FILE = encode(ARTIFACT)
FOOTER = FILE[footer_start(FILE) : -8]


def with_footer(footer: bytes, pages: bytes = FILE[: footer_start(FILE)]) -> bytes:
    return pages + footer + struct.pack("<I", len(footer)) + MAGIC


def changed_bytes(chance: random.Random) -> Iterator[bytes]:
    """Flipped bits, cuts, insertions, repeated and exchanged pieces, bytes before and behind."""
    plain = shuffled(chance)
    while True:
        at = chance.randrange(len(FILE))
        yield FILE[:at] + bytes([FILE[at] ^ 1 << chance.randrange(8)]) + FILE[at + 1 :]
        yield FILE[:at]
        yield FILE[:at] + chance.randbytes(chance.randrange(1, 9)) + FILE[at:]
        yield FILE[:at] + FILE[at + chance.randrange(1, 9) :]
        yield FILE + chance.randbytes(chance.randrange(1, 9))
        yield plain(FILE)


def changed_parts(chance: random.Random) -> Iterator[bytes]:
    """Levels, values, pages, sizes, counts and metadata changed, in a file that is sound otherwise."""
    plain = shuffled(chance)
    while True:
        yield change_parquet(FILE, chance, plain)


def changed_footer(chance: random.Random) -> Iterator[bytes]:
    """A field that is added, dropped or given another value, at any depth of the footer."""
    extra = (
        *(Field(I32, 1), Field(I64, 1 << 40), Field(BINARY, b"x" * 100), Field(TRUE, True)),
        *(Field(STRUCT, {}), Field(LIST, Items(BINARY, [b"padding"] * 20))),
    )
    while True:
        stated, _ = read_struct(FOOTER)
        structs = list(structs_in(stated))
        fields: Any = chance.choice(structs)
        match chance.randrange(4):
            case 0:
                fields[max(fields, default=0) + chance.randrange(1, 9)] = chance.choice(extra)
            case 1:
                fields.setdefault(chance.randrange(1, 15), chance.choice(extra))
            case 2 if fields:
                del fields[chance.choice(list(fields))]
            case _ if fields:
                fields[chance.choice(list(fields))] = chance.choice(extra)
        yield with_footer(write_struct(fields if fields is stated else stated))


def structs_in(value: Any) -> Iterator[dict[int, Any]]:
    """A struct and all in it."""
    if isinstance(value, dict):
        yield value
        for field in value.values():
            yield from structs_in(field.value)
    elif isinstance(value, Items):
        for item in value.values:
            yield from structs_in(item)


def padded_numbers(chance: random.Random) -> Iterator[bytes]:
    """A varint written in more bytes than it takes, in a header, before a run of levels or in the footer."""
    while True:
        at = chance.choice((4 + chance.randrange(30), len(FILE) - 8 - chance.randrange(len(FOOTER))))
        padded = FILE[:at] + bytes([FILE[at] | 0x80, 0]) + FILE[at + 1 :]
        yield padded
        yield with_footer(padded[footer_start(FILE) : -8]) if at >= footer_start(FILE) else padded


def other_levels(chance: random.Random) -> Iterator[bytes]:
    """The same levels in other runs: RLE, several bit-packed runs, and ones in the place of padding."""
    while True:
        file = take_apart(FILE)
        column = chance.choice(file.columns[:4])
        page = column.pages[0]
        runs, values = levels_of(page.payload, page.values)
        runs = [chance.choice(REWRITES)(bits, chance) for bits in runs]
        page.payload = b"".join(struct.pack("<I", len(run)) + run for run in runs) + values
        yield put_together(file, NEVER_LIES, shuffled(chance))


class NeverLies(random.Random):
    """Chance by which ``put_together`` leaves numbers and footer as they are."""

    def random(self) -> float:
        return 1.0


NEVER_LIES = NeverLies()


def levels_of(payload: bytes, count: int) -> tuple[list[list[int]], bytes]:
    found, at = [], 0
    for _ in range(2):
        (size,) = struct.unpack_from("<I", payload, at)
        bits = np.unpackbits(np.frombuffer(payload, np.uint8, size - 1, at + 5), bitorder="little")
        found.append(bits[:count].tolist())
        at += 4 + size
    return found, payload[at:]


def packed(bits: list[int], chance: random.Random) -> bytes:
    return bytes([-(-len(bits) // 8) << 1 | 1]) + np.packbits(bits, bitorder="little").tobytes()


def run_lengths(bits: list[int], chance: random.Random) -> bytes:
    ends = [n for n in range(1, len(bits) + 1) if n == len(bits) or bits[n] != bits[n - 1]]
    return b"".join(bytes([end - start << 1, bits[start]]) for start, end in zip([0, *ends], ends, strict=False))


def two_runs(bits: list[int], chance: random.Random) -> bytes:
    return packed(bits[:8], chance) + (packed(bits[8:], chance) if bits[8:] else b"")


def ones_behind(bits: list[int], chance: random.Random) -> bytes:
    return packed(bits + [chance.randrange(2) for _ in range(-len(bits) % 8)], chance)


def a_group_more(bits: list[int], chance: random.Random) -> bytes:
    return packed(bits + [0] * (8 * chance.randrange(1, 4)), chance)


REWRITES = (packed, run_lengths, two_runs, ones_behind, a_group_more)


def rewritten(chance: random.Random) -> Iterator[bytes]:
    """The same table from another writer, with its pairs in the footer."""
    table = pq.read_table(pa.BufferReader(FILE))
    pairs = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    while True:
        sink = pa.BufferOutputStream()
        options = {
            "compression": chance.choice(("none", "snappy", "gzip", "zstd")),
            "use_dictionary": chance.random() < 0.5,
            "write_statistics": chance.random() < 0.5,
            "store_schema": chance.random() < 0.5,
            "data_page_version": chance.choice(("1.0", "2.0")),
            "data_page_size": chance.choice((8, 1 << 20)),
            "write_page_checksum": chance.random() < 0.5,
        }
        with pq.ParquetWriter(sink, table.schema.remove_metadata(), **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(dict(chance.sample(list(pairs.items()), len(pairs))))
        yield bytes(sink.getvalue())


def reordered(chance: random.Random) -> Iterator[bytes]:
    """Columns, pairs or schema in another order, with offsets that fit."""
    while True:
        file = take_apart(FILE)
        group: Any = file.footer[4].value.values[0]  # type: ignore[union-attr]
        match chance.randrange(3):
            case 0:
                order = chance.sample(range(5), 5)
                file.columns[:] = [file.columns[n] for n in order]
                group[1] = Field(LIST, Items(STRUCT, [group[1].value.values[n] for n in order]))
            case n:
                listed: Any = file.footer[(5, 2)[n - 1]].value
                items = chance.sample(list(listed.values), len(listed.values))
                file.footer[(5, 2)[n - 1]] = Field(LIST, Items(STRUCT, items))
        yield put_together(file, NEVER_LIES, shuffled(chance))


@pytest.mark.parametrize(
    ("mutations", "share"),
    [
        (changed_bytes, 0.4),
        (changed_parts, 0.25),
        (changed_footer, 0.2),
        (padded_numbers, 0.05),
        (other_levels, 0.05),
        (reordered, 0.03),
        (rewritten, 0.02),
    ],
)
def test_another_encoding_is_refused_or_identical_to_the_byte(mutations: Any, share: float) -> None:
    root, made, refusals = rollouts_root(1, ROUNDS, ARTIFACT), mutations(random.Random(11)), Counter[Reason | None]()
    for _ in range(round(MUTATIONS * share)):
        file = next(made)
        try:
            read = decode(file)
        except Rejected as refusal:
            refusals[refusal.reason] += 1
            continue
        assert encode(read) == file
        assert (file == FILE) == (rollouts_root(1, ROUNDS, read) == root)
    assert set(refusals) == {Reason.SHAPE}
    assert refusals.total() > 0.5 * MUTATIONS * share, "hardly another encoding among them"


def test_the_unchanged_parts_make_the_same_file() -> None:
    """What the mutations take apart they put together as it was, so that what is refused is what they changed."""
    assert put_together(take_apart(FILE), NEVER_LIES, shuffled(random.Random(1))) == FILE
    assert with_footer(write_struct(read_struct(FOOTER)[0])) == FILE
    chance = random.Random(1)
    for column in take_apart(FILE).columns[:4]:
        runs, values = levels_of(column.pages[0].payload, column.pages[0].values)
        again = b"".join(struct.pack("<I", len(packed(bits, chance))) + packed(bits, chance) for bits in runs)
        assert again + values == column.pages[0].payload
