"""Choices inside a rule, all from one number that hypothesis draws.

Rules choose a lot: a committee of five takes twenty choices. Drawn one by one, hypothesis would favour the simplest of
each, and hardly any round would ever end; so it draws a seed for each rule, and shrinks the list of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

Choice = TypeVar("Choice")


class Chance:
    """A seeded source of choices; hypothesis likes to repeat itself, so the time counts too."""

    def __init__(self, seed: int, now: int) -> None:
        self._random = Random(f"{seed} at {now}")

    def pick(self, options: Sequence[Choice]) -> Choice:
        """One of them."""
        return self._random.choice(options)

    def whole(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self._random.randint(low, high)

    def coin(self) -> bool:
        return self.rarely(2)

    def rarely(self, one_in: int = 8) -> bool:
        """True once in so many times."""
        return self._random.randrange(one_in) == 0

    def shuffled(self, items: Iterable[Choice]) -> list[Choice]:
        """All of them, in any order."""
        listed = list(items)
        self._random.shuffle(listed)
        return listed


SEED = st.tuples(*[st.booleans()] * 16).map(lambda bits: sum(bit << place for place, bit in enumerate(bits)))
"""Drawn bit by bit: among integers hypothesis mixes some that it finds in the modules that are loaded, and those depend
on which tests ran before."""
