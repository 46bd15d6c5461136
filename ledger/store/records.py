"""Events as canonical JSON, and back: how raw events are kept.

Sorted keys, no spaces; integers as decimal strings (a uint256 fits no JSON number), bytes as 0x-hexadecimal, enums by
their number, structs as objects, lists as lists. The same event always gives the same text.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from enum import IntEnum
from json.encoder import encode_basestring as encode_text
from typing import Any, get_args, get_origin, get_type_hints

from ledger.store.rows import attributes, written_out
from protocol.chain.events import EVENTS, Event


def encode_event(event: Event) -> str:
    """Returns the canonical JSON of one event."""
    kind: Any = type(event)
    return _encoder(kind)(event)


def decode_event(name: str, payload: str) -> Event:
    """Reads an event of the type called ``name`` back from its canonical JSON."""
    event: Event = _typed(EVENTS[name], json.loads(payload))
    return event


@functools.cache
def _encoder(kind: Any) -> Callable[[Any], str]:
    """Returns the function that writes a value of this type; it inspects no type any more."""
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _object_encoder(kind)
    if get_origin(kind) is tuple:
        item = _encoder(get_args(kind)[0])
        return lambda values: "[" + ",".join(map(item, values)) + "]"
    if kind is str:
        return encode_text
    if kind is bytes:
        return lambda value: f'"0x{value.hex()}"'
    if kind is bool:
        return lambda value: "true" if value else "false"
    return lambda value: f'"{int(value)}"'


def _object_encoder(kind: type) -> Callable[[Any], str]:
    """Returns the encoder of a dataclass: its fields, in one pass, into a template with their names in it."""
    hints = sorted(_hints(kind).items())
    numbers = {name for name, hint in hints if isinstance(hint, type) and issubclass(hint, int) and hint is not bool}
    fields = ",".join(f'"{name}":"%d"' if name in numbers else f'"{name}":%s' for name, _ in hints)
    converts = [None if name in numbers else _encoder(hint) for name, hint in hints]
    encode = written_out(attributes(name for name, _ in hints), converts)
    template = f"{{{fields}}}"
    return lambda value: template % encode(value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return kind(**{name: _typed(hint, value[name]) for name, hint in _hints(kind).items()})
    if get_origin(kind) is tuple:
        return tuple(_typed(get_args(kind)[0], item) for item in value)
    if kind is bytes:
        return bytes.fromhex(value[2:])
    if kind is int or (isinstance(kind, type) and issubclass(kind, IntEnum)):
        return kind(int(value))
    return value
