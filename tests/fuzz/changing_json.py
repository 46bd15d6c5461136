"""Changing JSON below its surface: values are exchanged in the tree, then it is written canonically again. PURE."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from tests.fuzz.changes import LARGE_NUMBERS, Plain

RAW = (
    "1e5",
    "-0",
    "-0.0",
    "1E400",
    "0.10",
    "NaN",
    "-Infinity",
    "1" * 4301,
    "9" * 400,
    "1e-320",
    '"\\ud800"',
    '"\\u0000"',
)
"""Tokens that a canonical writer would not write, or only for values that no tree holds."""
DEPTHS = (2, 50, 190, 260, 900, 990, 1010, 3000)
TEXTS = (
    "",
    "x",
    "0x",
    "0x" + "00" * 32,
    "00" * 32,
    "AAAA",
    "AAA=",
    "AAAAAAA=",
    "\u00e9",
    "\U0001f600",
    "a" * 300,
    "../a",
    "1",
)


def change_json(data: bytes, chance: random.Random, plain: Plain) -> bytes:
    """Exchanges, drops, adds or repeats some values; now and then changes bytes alone."""
    if chance.random() < 0.25:
        return plain(data)
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return plain(data)
    if not isinstance(tree, dict):
        return plain(data)
    raw: dict[str, str] = {}
    try:
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            _change_one(tree, chance, plain, raw)
    except RecursionError:
        return plain(data)
    return _written(tree, raw)


def _written(tree: Any, raw: dict[str, str]) -> bytes:
    try:
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError, TypeError):
        return b"{}"
    for mark, token in raw.items():
        text = text.replace(f'"{mark}"', token)
    return text.encode("utf-8", "surrogatepass")


def _change_one(tree: Any, chance: random.Random, plain: Plain, raw: dict[str, str]) -> None:
    place = _place(tree, chance)
    keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
        return
    key = chance.choice(keys)
    match chance.randrange(10):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[chance.choice((*TEXTS, str(key) + "x"))] = place[key]
        case 1:
            place.insert(key, place[key])
        case 2 if isinstance(place[key], list):
            place[key] = place[key] * chance.choice((2, 3, 40))
        case 3:
            place[key] = copy.deepcopy(_place(tree, chance))
        case 4 | 5 if isinstance(place[key], str):
            place[key] = plain(place[key].encode("utf-8", "surrogatepass")).decode("latin-1")
        case 4 | 5 if isinstance(place[key], int):
            place[key] = place[key] + chance.choice((-1, 1, 256))
        case _:
            place[key] = _odd(chance, raw)


def _place(tree: Any, chance: random.Random) -> Any:
    """A dict or list somewhere in the tree."""
    place = tree
    while chance.random() < 0.8:
        inner = [value for value in (place.values() if isinstance(place, dict) else place) if _holds(value)]
        if not inner:
            break
        place = chance.choice(inner)
    return place


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _odd(chance: random.Random, raw: dict[str, str]) -> Any:
    match chance.randrange(8):
        case 0:
            return chance.choice((None, True, False, [], {}, [[]], {"": 0}))
        case 1 | 2:
            return chance.choice((1, -1)) * chance.choice(LARGE_NUMBERS)
        case 3:
            return chance.choice((0.5, 1.0, -1.5, 1e300, 5e-324, 0.1, 1e22, 123456789.123))
        case 4 | 5:
            return chance.choice(TEXTS)
        case 6:
            return _marked(chance.choice(RAW), raw)
        case _:
            depth, (start, end) = chance.choice(DEPTHS), chance.choice((("[", "]"), ('{"":', "}")))
            return _marked(start * depth + ("" if start == "[" else "0") + end * depth, raw)


def _marked(token: str, raw: dict[str, str]) -> str:
    mark = f"\x01{len(raw)}\x01"
    raw[json.dumps(mark)[1:-1]] = token
    return mark
