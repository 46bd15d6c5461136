"""Canonical JSON, in which a value has exactly one spelling, so that its hash names it.

Keys are sorted, without spaces, in ASCII; numbers are finite. Bytes that do not encode back to themselves are refused:
unknown and missing fields, numbers as text, duplicate keys and every other spelling. PURE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from protocol.errors import AssizeError, Rejected

_T = TypeVar("_T")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class InHex:
    """Marks a field of bytes that is hexadecimal text in JSON; ``pattern`` and ``max_length`` bound that text."""

    pattern: str
    max_length: int | None = None
    prefix: str = "0x"

    def __get_pydantic_core_schema__(self, source: type[bytes], handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(pattern=self.pattern, max_length=self.max_length)
        return core_schema.no_info_before_validator_function(
            lambda value: self._write(value) if isinstance(value, bytes) else value,
            core_schema.no_info_after_validator_function(lambda value: bytes.fromhex(value[len(self.prefix) :]), text),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._write, return_schema=text, when_used="json"
            ),
        )

    def _write(self, value: bytes) -> str:
        return self.prefix + value.hex()


Bytes32 = Annotated[bytes, InHex(r"^0x[0-9a-f]{64}$")]
HexBytes = Annotated[bytes, InHex(r"^0x([0-9a-f]{2})*$", 1 << 16)]
Signature = Annotated[bytes, InHex(r"^0x[0-9a-f]{130}$")]


@contextmanager
def validating(what: str, refusal: Callable[[str], AssizeError] = Rejected, table: str = "") -> Iterator[None]:
    """Turns pydantic's `ValidationError` into a ``refusal``: ``what``, the first invalid field, and its fault.

    ``table`` is the table of a file that holds the fields.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, (table, *first["loc"]))).strip(".") or "the document"
        raise refusal(f"{what}: {where}: {first['msg']}") from error


def check_depth(text: bytes, most: int) -> None:
    """Raises ``Rejected`` for JSON nested more than ``most`` times: a parser may run out of stack on it, and crash."""
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > most:
            raise Rejected(f"JSON nested more than {most} times")


class Canonical(Generic[_T]):
    """The canonical JSON of a dataclass or model, whose annotations describe the fields."""

    def __init__(self, kind: type[_T], noun: str, limit: int) -> None:
        """Names the value by ``noun`` in errors, and reads at most ``limit`` bytes."""
        self._adapter, self._noun, self._limit = TypeAdapter[_T](kind), noun, limit

    def encode(self, value: _T) -> bytes:
        """Returns the canonical bytes of ``value``."""
        plain = self._adapter.dump_python(value, mode="json", by_alias=True)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def decode(self, data: bytes) -> _T:
        """Returns the value whose canonical bytes are ``data``; raises ``Rejected`` for any other bytes."""
        if len(data) > self._limit:
            raise Rejected(f"invalid {self._noun} of {len(data)} bytes: expected at most {self._limit}")
        try:
            with validating(f"invalid {self._noun}"):
                value = self._adapter.validate_json(data)
            canonical = self.encode(value)
        except ValueError as error:
            raise Rejected(f"invalid {self._noun}: not a finite number") from error
        if canonical != data:
            raise Rejected(f"invalid {self._noun}: not in canonical form")
        return value
