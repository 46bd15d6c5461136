"""Freshness: how far the ledger is from the chain it follows, for the top of every page.

The chain is asked in a thread of its own, at most once a second, and waited for a moment only: a page does not hang
with the RPC.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ledger.api.service import LedgerService
from ledger.queries.lookup import At, at
from protocol.errors import AssizeError

LOOK_SECONDS = 1.0
"""Least time between two looks at the chain."""
KEPT_SECONDS = 10.0
"""Age up to which a page takes the last look while the next one is under way."""
PATIENCE_SECONDS = 0.5
"""Longest time for which a page waits for a look where there is no such."""
ALARMING_BLOCKS = 10
"""Blocks behind from which on a page warns."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """State of the ledger beside its chain.

    Args:
        state: following, behind, forked, halted, or unknown while no RPC answers.
        head: newest block of the chain; None while no RPC answers.
        says: one sentence; empty where all is well.
    """

    state: str
    head: int | None
    says: str

    @property
    def alarming(self) -> bool:
        """True if a reader must know before trusting the page to be current."""
        return self.state != "following"


def judge(here: At, head: int | None, same: bool, halted: bool, problem: str) -> Freshness:
    """Returns the freshness of a ledger. PURE.

    Args:
        here: block where the ledger stands.
        head: newest block of the chain, None if it was not answered.
        same: False if the chain has another block at the ledger's height.
        halted: True if the ledger has stopped following.
        problem: reason for which it does not get on, or empty.
    """
    if halted:
        return Freshness("halted", head, f"The ledger has halted at block {here.block_number:,}: {problem}")
    if head is None:
        return Freshness("unknown", None, f"The chain does not answer, so the lag is unknown: {problem}")
    if not same:
        says = f"The chain has another block at height {here.block_number:,}: a reorganisation is not followed yet"
        return Freshness("forked", head, says + (f": {problem}" if problem else ""))
    behind = max(0, head - here.block_number)
    if behind >= ALARMING_BLOCKS or problem:
        reason = f": {problem}" if problem else ""
        return Freshness("behind", head, f"The ledger is {behind:,} blocks behind the chain{reason}")
    return Freshness("following", head, "")


@dataclass(frozen=True, slots=True)
class _ChainLook:
    """Answer of the chain, and the monotonic second at which it came."""

    taken_at: float
    head: int | None = None
    same: bool = True
    problem: str = "there was no answer in time"


class ChainWatch:
    """Looks at the chain for the pages of one ledger. Safe to share between threads."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._seen = _ChainLook(-KEPT_SECONDS)
        self._asked_at = -LOOK_SECONDS
        self._answered = threading.Event()
        self._answered.set()

    def freshness(self, here: At) -> Freshness:
        """Returns the freshness of the ledger, which stands at ``here``."""
        with self._lock:
            now = time.monotonic()
            if self._answered.is_set() and now - self._asked_at >= LOOK_SECONDS:
                self._asked_at = now
                self._answered.clear()
                threading.Thread(target=self._look, name="explorer-look", daemon=True).start()
        if now - self._seen.taken_at > KEPT_SECONDS:
            self._answered.wait(max(0.0, self._asked_at + PATIENCE_SECONDS - now))
        seen = self._seen if time.monotonic() - self._seen.taken_at <= KEPT_SECONDS else _ChainLook(now)
        follower = self._service.follower
        return judge(here, seen.head, seen.same, follower.halted, follower.problem or seen.problem)

    def _look(self) -> None:
        head, same, problem = None, True, ""
        try:
            chain = self._service.chain
            with self._service.database.reading() as connection:
                here = at(connection)
            head = chain.head().number
            same = head >= here.block_number and "0x" + chain.block(here.block_number).hash.hex() == here.block_hash
        except AssizeError as error:
            problem = str(error)
        finally:
            self._seen = _ChainLook(time.monotonic(), head, same, problem)
            self._answered.set()
