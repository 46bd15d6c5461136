"""Headers of safetensors files: names, formats and shapes of tensors, read before any of their values. PURE.

    file   = N (8 bytes, little-endian), header (N bytes), values
    header = {"__metadata__":{"…":"…"},"NAME":{"dtype":"F32","shape":[…],"data_offsets":[B,E]},…}

Stricter than the format: at most ``MAX_HEADER_BYTES`` of header, each name once, values one after another without a gap
up to the last byte of the file, and in a checkpoint only the formats that a run's rules know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from protocol.errors import Rejected
from protocol.wire.canonical import check_depth, validating

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 8 << 20
"""Room for some 60,000 tensors."""
MAX_DIMENSIONS = 8
WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 2),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F64", "I64", "U64"), 8),
}
"""Bytes of one value by its format."""
OF_RULES = ("F32", "BF16")
"""The formats that a run's rules know."""
MAX_DEPTH = 3
_METADATA = "__metadata__"

_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 50)]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: its format, its shape, and where its values begin and end after the header."""

    dtype: str
    shape: Annotated[tuple[_Number, ...], Field(max_length=MAX_DIMENSIONS)]
    data_offsets: tuple[_Number, _Number]

    @property
    def size(self) -> int:
        """Bytes that the values take by format and shape."""
        return math.prod(self.shape) * WIDTHS[self.dtype]


_TENSORS = TypeAdapter(dict[str, StoredTensor])
_TEXTS = TypeAdapter(dict[str, str])


def head_bytes(length: bytes, file_bytes: int, room: int = MAX_HEADER_BYTES) -> int:
    """Returns the number of bytes before the values, from the ``LENGTH_BYTES`` at the beginning of a file.

    Raises:
        Rejected: the header would not fit into the file, or into ``room``.
    """
    size = LENGTH_BYTES + int.from_bytes(length, "little")
    if len(length) < LENGTH_BYTES or size > min(room, file_bytes):
        raise Rejected(f"a header of {size} bytes: expected at most {min(room, file_bytes)}")
    return size


def parse_head(head: bytes, file_bytes: int, formats: Collection[str] = OF_RULES) -> dict[str, StoredTensor]:
    """Returns the tensors of a file by name, in the order of their values.

    Args:
        head: the file up to its values.
        file_bytes: size of the file.
        formats: those that its tensors may have.

    Raises:
        Rejected: the header is not one of these files, or does not describe all bytes of the file, each once.
    """
    check_depth(head[LENGTH_BYTES:], MAX_DEPTH)
    try:
        plain = json.loads(head[LENGTH_BYTES:], object_pairs_hook=_once)
    except ValueError as error:
        raise Rejected("a header that is not JSON") from error
    with validating("an invalid header"):
        if isinstance(plain, dict):
            _TEXTS.validate_python(plain.pop(_METADATA, {}), strict=True)
        tensors = _TENSORS.validate_python(plain)
    return _in_order(tensors, file_bytes - len(head), formats)


def _in_order(tensors: dict[str, StoredTensor], data_bytes: int, formats: Collection[str]) -> dict[str, StoredTensor]:
    end = 0
    ordered = dict(sorted(tensors.items(), key=lambda named: named[1].data_offsets))
    for name, tensor in ordered.items():
        if tensor.dtype not in formats:
            raise Rejected(f"tensor {name!r} in format {tensor.dtype!r}: expected {' or '.join(formats)}")
        if tensor.data_offsets != (end, end + tensor.size):
            raise Rejected(f"tensor {name!r} at bytes {tensor.data_offsets}: expected {(end, end + tensor.size)}")
        end += tensor.size
    if not tensors or end != data_bytes:
        raise Rejected(f"tensors of {end} bytes: expected {data_bytes}, the rest of the file")
    return ordered


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object; raises ``Rejected`` if it holds a key twice."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise Rejected(f"{key!r} twice in one header")
        made[key] = value
    return made
