"""The chain's time between two blocks."""

from __future__ import annotations

import time


class BlockClock:
    """The newest block's time plus the time since it was read, as this machine's clock may be wrong."""

    def __init__(self) -> None:
        self.read(0)

    def read(self, block_time: int) -> None:
        """Takes in the time of the newest block, in unix seconds."""
        self._block_time, self._read_at = block_time, time.monotonic()

    def now(self) -> float:
        """Returns the chain's time in unix seconds."""
        return self._block_time + (time.monotonic() - self._read_at)
