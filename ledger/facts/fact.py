"""Base of all facts, and the annotations of their fields: the column type and the text of each.

int      64-bit integer        number in JSON
Wide     decimal text          string in JSON: wei, credits, units, whatever a party may choose up to 2**256
Bitmap   0x-hexadecimal text   the same in JSON; bit j stands for job j
Hex      0x-hexadecimal text   the same in JSON; hashes, roots, packed bytes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

from pydantic import PlainSerializer

NO_WORD = bytes(32)
"""A hash that is not known yet."""


def hex_bytes(value: bytes) -> str:
    """Returns bytes as people and JSON read them."""
    return "0x" + value.hex()


Wide = Annotated[int, PlainSerializer(str, return_type=str)]
Bitmap = Annotated[int, PlainSerializer(hex, return_type=str)]
Hex = Annotated[bytes, PlainSerializer(hex_bytes, return_type=str)]


class Fact:
    """A frozen value for a thing the chain records; ``KEY`` names the fields that identify it among its kind."""

    __slots__ = ()
    KEY: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]


_Kind = TypeVar("_Kind", bound=Fact)
KINDS: list[type[Fact]] = []
"""Every kind of fact; each has a table."""


@dataclass_transform(frozen_default=True)
def fact(*key: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Returns a decorator that makes a class a kind of fact, identified by the fields ``key``."""

    def register(cls: type[_Kind]) -> type[_Kind]:
        kind = dataclass(frozen=True, slots=True)(cls)
        kind.KEY = key
        KINDS.append(kind)
        read: Callable[[Any], Any] = attrgetter(*key)
        _KEY_READERS[kind] = read if len(key) > 1 else lambda value: (read(value),)
        return kind

    return register


_KEY_READERS: dict[type[Fact], Callable[[Any], tuple[int | str, ...]]] = {}


def key_of(value: Fact) -> tuple[int | str, ...]:
    """Returns the values that identify a fact among its kind."""
    return keys_of(type(value))(value)


def keys_of(kind: type[Fact]) -> Callable[[Any], tuple[int | str, ...]]:
    """Returns the function that reads the key of a fact of this kind."""
    return _KEY_READERS[kind]


def annotations_of(kind: type[Fact]) -> dict[str, Any]:
    """Returns the annotation of each field of a kind of fact."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError(f"invalid number {text!r}: expected decimal digits")
    return int(text)


Codec = tuple[Callable[[Any], str], Callable[[str], Any]]
CODECS: dict[Any, Codec] = {
    int: (str, _number),
    Wide: (str, _number),
    str: (str, str),
    bool: (lambda value: "true" if value else "false", lambda text: {"true": True, "false": False}[text]),
    Bitmap: (hex, lambda text: int(text, 16)),
    Hex: (hex_bytes, lambda text: bytes.fromhex(text.removeprefix("0x"))),
}
"""Annotation of a field to the functions that write and read it as text."""
