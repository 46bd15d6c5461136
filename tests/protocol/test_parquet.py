"""The compressed layout of task files: what its headers do not prove is refused before the library sees it."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.errors import Rejected
from protocol.wire import parquet
from protocol.wire.reasons import Reason

SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
TABLE = pa.table({"tokens": [[1, 2], [3]], "text": ["a", "b"]}, schema=SCHEMA)
PAIRS = {"name": "value"}


def read(data: bytes, inflated: int = 1 << 20) -> tuple[pa.Table, dict[str, str]]:
    return parquet.read(data, SCHEMA, 100, 1 << 20, inflated)


def refused(data: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        read(data)
    assert caught.value.reason == Reason.SHAPE
    return str(caught.value)


def written(table: pa.Table = TABLE, times: int = 1, **options) -> bytes:
    sink = pa.BufferOutputStream()
    pinned = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, table.schema, **(pinned | options)) as writer:
        for _ in range(times):
            writer.write_table(table)
        writer.add_key_value_metadata(PAIRS)
    return bytes(sink.getvalue())


def test_what_is_written_is_read():
    for data in (parquet.write(TABLE, PAIRS), written()):
        table, pairs = read(data)
        assert table.equals(TABLE)
        assert pairs == PAIRS


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"compression": "none"},
        {"use_dictionary": True},
        {"write_statistics": True},
        {"data_page_version": "2.0"},
        {"column_encoding": {"tokens.list.element": "DELTA_BINARY_PACKED"}},
        {"write_page_checksum": True},
    ],
)
def test_a_file_in_another_layout_is_refused(options):
    refused(written(**options))


def test_another_schema_no_row_and_two_row_groups_are_refused():
    assert "schema" in refused(written(TABLE.rename_columns(["a", "b"])))
    assert "schema" in refused(written(pa.table({"pickle": [b"x"]})))
    assert "rows" in refused(parquet.write(TABLE.slice(0, 0), PAIRS))
    assert "row groups" in refused(written(times=2))


def test_no_footer_ends_the_process():
    """The library aborts on some values, codec 13 (26 in zigzag) among them, so it must never see a foreign footer."""
    data = written()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    for position in range(start, len(data) - 8):
        for value in (26, data[position] ^ 0x80):
            forged = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                read(forged)
            except Rejected:
                continue


def test_a_bomb_is_refused_before_it_inflates():
    zeros = pa.array(np.zeros(4_000_000, dtype=np.int32))
    tokens = pa.ListArray.from_arrays(pa.array([0, 4_000_000], pa.int32()), zeros, type=SCHEMA.field(0).type)
    bomb = parquet.write(pa.table({"tokens": tokens, "text": ["a"]}, schema=SCHEMA), PAIRS)
    assert len(bomb) < 1 << 20
    assert "inflates" in refused(bomb)


def test_a_page_that_claims_more_values_than_it_holds_is_refused():
    """The first page header's count of values (field 1 of its inner struct) is raised past what its bytes can hold."""
    data = written()
    at = data.index(b"\x2c\x15", 4) + 2
    refused(data[:at] + b"\x7e" + data[at + 1 :])
