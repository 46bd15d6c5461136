"""Changing bytes by chance: what every clever change falls back on. PURE."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

Plain = Callable[[bytes], bytes]
"""Changes bytes of no known form: the fuzzer's own mutation, or ``shuffled`` where there is no fuzzer."""

NUMBERS = (0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 1 << 15, 65497, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
LARGE_NUMBERS = (*NUMBERS, 1 << 33, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 255, 1 << 256)


class Change(Protocol):
    """Returns other bytes like ``data``; all chance is drawn from ``chance`` and by ``plain``."""

    def __call__(self, data: bytes, chance: random.Random, plain: Plain) -> bytes: ...


def by_bytes(data: bytes, chance: random.Random, plain: Plain) -> bytes:
    """Changes without knowing the form, but by whole words now and then."""
    if chance.random() < 0.5 or len(data) < 2:
        return plain(data)
    at = chance.randrange(len(data) - 1)
    word = (chance.choice(NUMBERS) & 0xFFFF).to_bytes(2, chance.choice(("big", "little")))
    return data[:at] + word + data[at + 2 :]


def shuffled(chance: random.Random) -> Plain:
    """Returns a plain mutation for where there is no fuzzer: flips, cuts, repeats and inserts."""

    def plain(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at, size = chance.randrange(len(changed) + 1), chance.choice((1, 1, 2, 4, 8, 64))
            match chance.randrange(4):
                case 0:
                    changed[at : at + size] = chance.randbytes(len(changed[at : at + size]))
                case 1:
                    del changed[at : at + size]
                case 2:
                    changed[at:at] = chance.randbytes(size)
                case _:
                    changed[at:at] = changed[at : at + size] * chance.choice((1, 3))
        return bytes(changed)

    return plain
