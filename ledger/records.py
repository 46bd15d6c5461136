"""Events as canonical JSON, and back: how raw events are kept.

Sorted keys, no spaces; integers as decimal strings (a uint256 fits no JSON number), bytes as 0x-hexadecimal, enums by
their number, structs as objects, lists as lists. The same event always gives the same text.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from enum import IntEnum
from typing import Any, get_args, get_origin, get_type_hints

from protocol.chain.events import EVENTS, Event


def encode_event(event: Event) -> str:
    """Returns the canonical JSON of one event."""
    return json.dumps(_plain(event), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode_event(name: str, payload: str) -> Event:
    """Reads an event of the type called ``name`` back from its canonical JSON."""
    event: Event = _typed(EVENTS[name], json.loads(payload))
    return event


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return value


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
