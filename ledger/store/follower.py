"""Keeps a database at the head of the chain, in a thread beside the API."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor

import structlog
from prometheus_client import Gauge

from ledger.store.database import Database
from ledger.store.index import Index
from protocol.chain.reading.client import Chain
from protocol.errors import AssizeError, Unavailable

POLL_SECONDS = 0.25
"""Between looks at an idle chain; each costs one RPC request."""

LONGEST_WAIT_SECONDS = 10.0
"""Longest wait after failures in a row."""

SYNCED = Gauge("assize_ledger_synced_timestamp_seconds", "When the database was last at the head of the chain")
HALTED = Gauge("assize_ledger_halted", "1 once the ledger follows the chain no more: its log says why")

log = structlog.get_logger()


class Follower:
    """Indexes until it is stopped."""

    def __init__(self, chain: Chain, database: Database, poll_seconds: float = POLL_SECONDS) -> None:
        self._chain = chain
        self._database = database
        self._poll_seconds = poll_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="ledger-follower", daemon=True)
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why it does not get on; empty while it does."""
        return self._problem or ("the follower has ended; its log says why" if self.halted else "")

    @property
    def halted(self) -> bool:
        """True if it has ended without being stopped: it does not go on by itself."""
        return not self._thread.is_alive() and not self._stopping.is_set()

    def start(self) -> None:
        """Starts following."""
        self._thread.start()

    def stop(self) -> None:
        """Stops, and waits until the step under way is done."""
        self._stopping.set()
        self._thread.join()

    def _follow(self) -> None:
        with ThreadPoolExecutor(1) as ahead:
            self._advance(ahead)

    def _advance(self, ahead: Executor) -> None:
        wait, index = self._poll_seconds, None
        while not self._stopping.is_set():
            try:
                index = index or Index(self._chain, self._database, ahead)
                if index.advance():
                    continue
                self._problem, wait = "", self._poll_seconds
                SYNCED.set_to_current_time()
            except Unavailable as error:
                self._problem = str(error)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                log.warning("ledger.behind", problem=self._problem)
            except AssizeError as error:
                # The chain went back on finality or contradicts itself: what is stored stays readable.
                self._problem = str(error)
                HALTED.set(1)
                log.error("ledger.halted", problem=self._problem)
                return
            self._stopping.wait(wait)
