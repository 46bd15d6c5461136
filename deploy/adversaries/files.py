"""Workers whose files are broken, huge or crash their readers. The rollouts they sign are those of honest work."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.wire.rollout import Artifact, Limits, encode
from protocol.wire.thrift import I64, LIST, STRUCT, Field, Items, Value, read_struct, write_struct
from worker.producer import Producer

MEBIBYTE = 1 << 20
CLAIMED = 1 << 40
SWOLLEN_TOKENS = 24 * MEBIBYTE
NO_LIMITS = Limits(1 << 40, prompt_tokens=1 << 30)


class Breaking(Producer):
    """Hands in the honest file as changed by ``broken``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.chance = random.Random(3)

    def encode(self, artifact: Artifact) -> bytes:
        """Returns the file to hand in."""
        return self.broken(artifact, super().encode(artifact))

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        raise NotImplementedError


class Truncated(Breaking):
    """Truncates its files at a random position."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        return file[: self.chance.randrange(len(file))]


class Flipped(Breaking):
    """Changes a few random bytes of its files."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        changed = bytearray(file)
        for _ in range(4):
            changed[self.chance.randrange(len(changed))] ^= 1 << self.chance.randrange(8)
        return bytes(changed) if bytes(changed) != file else b"\x00" + file


class Oversized(Breaking):
    """Puts many megabytes of zeros before the footer."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        footer = 8 + int(struct.unpack("<I", file[-8:-4])[0])
        return file[:-footer] + bytes(8 * MEBIBYTE) + file[-footer:]


class TooManyRollouts(Breaking):
    """Hands in each rollout 16 times."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        return encode(replace(artifact, rollouts=artifact.rollouts * 16))


class ZstdBomb(Breaking):
    """Hands in prompts of zeros compressed with zstd: a small file that inflates to a hundred megabytes."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        return swollen_file("zstd", artifact)


class SnappyBomb(Breaking):
    """Hands in the same prompts compressed with snappy, whose declared sizes a reader must trust."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        return swollen_file("snappy", artifact)


class DictionaryBomb(Breaking):
    """Hands in the same prompts as a dictionary with run lengths: a few kilobytes without compression."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        return swollen_file("dictionary", artifact)


class ThriftBomb(Breaking):
    """Writes a footer whose lists claim a trillion elements, or that nests without end."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        endless = b"\x19\xfc" + b"\xff" * 8 + b"\x7f" if self.chance.random() < 0.5 else b"\x1c" * 16_000
        return b"PAR1" + endless + struct.pack("<I", len(endless)) + b"PAR1"


class LyingFooter(Breaking):
    """Keeps its pages and claims in the footer that they hold a trillion values."""

    def broken(self, artifact: Artifact, file: bytes) -> bytes:
        """Returns the bytes to hand in."""
        size = int(struct.unpack("<I", file[-8:-4])[0])
        footer, _ = read_struct(file[-8 - size : -8])
        groups = _items(footer[4].value)
        group = _fields(groups[0])
        chunks = _items(group[1].value)
        chunk = _fields(chunks[0])
        meta = _fields(chunk[3].value) | {5: Field(I64, CLAIMED)}
        lying_chunk = chunk | {3: Field(STRUCT, meta)}
        lying_group = group | {1: Field(LIST, Items(STRUCT, [lying_chunk, *chunks[1:]]))}
        lying = write_struct(footer | {4: Field(LIST, Items(STRUCT, [lying_group]))})
        return file[: -8 - size] + lying + struct.pack("<I", len(lying)) + b"PAR1"


_BOMBS: dict[str, bytes] = {}


def _fields(value: Value) -> dict[int, Field]:
    assert isinstance(value, Mapping)
    return dict(value)


def _items(value: Value) -> Sequence[Value]:
    assert isinstance(value, Items)
    return value.values


def swollen_file(how: str, artifact: Artifact) -> bytes:
    """Returns a decompression bomb of one of three kinds, made once."""
    if how not in _BOMBS:
        file = encode(swollen(artifact), NO_LIMITS)
        options: dict[str, dict[str, Any]] = {
            "zstd": {"compression": "zstd", "use_dictionary": False},
            "snappy": {"compression": "snappy"},
            "dictionary": {"compression": "none", "use_dictionary": True},
        }
        _BOMBS[how] = rewritten(file, options[how])
    return _BOMBS[how]


def swollen(artifact: Artifact) -> Artifact:
    """Returns the artifact with a first prompt of many zeros."""
    first = replace(artifact.rollouts[0], prompt_tokens=np.zeros(SWOLLEN_TOKENS, np.int32))
    return replace(artifact, rollouts=(first, *artifact.rollouts[1:]))


def rewritten(file: bytes, options: Mapping[str, Any]) -> bytes:
    """Returns the same table, written with other ``options`` of the library."""
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(file)), sink, **options)
    return bytes(sink.getvalue())
