"""What a fault is: its number in the list, what it does to a network, and how to tell that the network bore it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.between import Answer, Asked, Forward, Interference
from tests.chaos.network import Network

Strike = Callable[[Network], list[str]]
"""Does the harm, ends it, and returns what was wrong meanwhile, in sentences."""

MOMENT_SECONDS = 60.0
"""How long a fault waits for the moment that it strikes at."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of the faults that the network must bear. After a ``fatal`` one it does not go on by itself."""

    number: int
    what: str
    strike: Strike
    fatal: bool = False


FAULTS: dict[int, Fault] = {}
"""By number."""


def fault(number: int, what: str, fatal: bool = False) -> Callable[[Strike], Strike]:
    """Puts a function on the list."""

    def listed(strike: Strike) -> Strike:
        FAULTS[number] = Fault(number, what, strike, fatal)
        return strike

    return listed


class Moment:
    """Waits for a request that ``chosen`` picks, does ``harm`` once, and answers it as ``harm`` says."""

    def __init__(self, chosen: Callable[[Asked], bool], harm: Interference) -> None:
        self._chosen, self._harm = chosen, harm
        self._once = threading.Lock()
        self._came = threading.Event()

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        """As an ``Interference``."""
        if not self._chosen(asked) or not self._once.acquire(blocking=False):
            return forward(asked)
        try:
            return self._harm(asked, forward)
        finally:
            self._came.set()

    def awaited(self) -> list[str]:
        """Returns once it came; a moment that never comes is told."""
        return [] if self._came.wait(MOMENT_SECONDS) else ["the moment to strike at never came"]


class Afterwards(Moment):
    """Does ``harm`` some ``seconds`` after an answer of which ``telling`` holds, to a request that ``chosen`` picks."""

    def __init__(
        self,
        chosen: Callable[[Asked], bool],
        telling: Callable[[Answer], bool],
        harm: Callable[[], None],
        seconds: float,
    ) -> None:
        super().__init__(chosen, self._strike)
        self._telling, self._then = telling, harm
        self._timer = threading.Timer(seconds, self._strike)

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        """As an ``Interference``."""
        answer = forward(asked)
        if self._chosen(asked) and self._once.acquire(blocking=False):
            if self._telling(answer):
                self._timer.start()
            else:
                self._once.release()
        return answer

    def awaited(self) -> list[str]:
        """Likewise; harm under way is waited for."""
        late = super().awaited()
        if late and self._once.locked():
            self._timer.join()
            return []
        return late

    def _strike(self, *_: object) -> Answer | None:
        try:
            self._then()
        finally:
            self._came.set()
        return None
