"""The clock of a database: of several driving processes one holds it and drives, the others stand by.

    stands by ──take──> holds it, renews it every second ──release──> stands by
                           └── another process took it, since it had ended ──> lost: stands by

It is a row with an end, by the database's time, and an epoch that counts its holders. A holder that was paused, or cut
off from the database, may find that it is lost only later. So every transaction of the holder's ends with a look at
the epoch, and so does every signature: nothing that a former holder believed gets into the database, and it signs no
transaction. What it had signed before is harmless: two processes with one key use the same nonces, of which the chain
takes one transaction each, and the contracts refuse a step that was taken.

A process that starts in the state directory of one that was killed need not wait for the end: the killed one's lock on
a file there is gone.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import structlog
from prometheus_client import Gauge
from sqlalchemy import ColumnElement, extract, literal, or_, update
from sqlmodel import Session, col, func, select

from coordinator.store import Store, keep_short
from coordinator.tables import ClockRow
from protocol.chain.writing.pending import TransactionSigner
from protocol.errors import Unavailable, accessing
from protocol.files import lock
from protocol.sql import inserting_new

log = structlog.get_logger()

DRIVING = Gauge("assize_coordinator_driving", "1 in the process that drives, 0 in those that stand by")

LEASE_SECONDS = 6.0
"""Time after which a holder that no longer renews may be replaced."""

RENEW_SECONDS = 1.0
"""Time between renewals."""

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Identifies a machine until its next start."""


class ClockLost(Unavailable):
    """Another process drives now."""


class ClockLease:
    """The clock, as one process sees it. Used from one thread, apart from its own that renews.

    Args:
        store: the database, whose transactions are not checked.
        lock_path: a file that this process locks while it lives.
    """

    def __init__(self, store: Store, lock_path: Path) -> None:
        self._store, self._lock_path = store, lock_path
        self._lock: TextIO | None = None
        self._epoch: int | None = None
        self._released = threading.Event()
        self._renewer: threading.Thread | None = None
        self.lost = False

    def take(self) -> bool:
        """Takes the clock if nobody holds it, and renews it from then on. Raises ``Unavailable``."""
        place = self._place()
        with self._store.reading() as session:
            row = session.get(ClockRow, 1)
            if row is not None and not session.scalar(select(self._free(session, place))):
                log.debug("clock_held", holder=row.holder)
                return False
        with self._store.writing() as session:
            keep_short(session)
            dialect, table = session.get_bind().dialect, ClockRow.__table__  # type: ignore[attr-defined]
            nobody = {"id": 1, "epoch": 0, "holder": "", "place": "", "ends_at": 0.0}
            session.connection().execute(inserting_new(dialect, table), nobody)
            mine = {
                "holder": f"{platform.node()}, process {os.getpid()}",
                "place": place,
                "ends_at": self._end(session),
            }
            taken = session.connection().execute(
                update(ClockRow).where(self._free(session, place)).values(epoch=ClockRow.epoch + 1, **mine)
            )
            if not taken.rowcount:
                return False
            self._epoch = session.exec(select(ClockRow.epoch)).one()
        self.lost, self._released = False, threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(self._released,), name="clock", daemon=True)
        self._renewer.start()
        DRIVING.set(1)
        log.info("driving", epoch=self._epoch)
        return True

    def check(self, session: Session) -> None:
        """Raises ``ClockLost`` if this process does not hold the clock; else nobody takes it before the commit."""
        if session.exec(select(ClockRow.epoch).with_for_update()).one() != self._epoch:
            self.lost = True
            raise ClockLost("another process drives now")

    def release(self) -> None:
        """Lets another process take the clock at once, if this one holds it and the database answers."""
        self._released.set()
        if self._renewer is not None:
            self._renewer.join()
            with suppress(Unavailable), self._store.writing() as session:
                self._of_mine(session, ends_at=0.0)
        self._epoch, self._renewer, self.lost = None, None, False
        DRIVING.set(0)

    def close(self) -> None:
        """Releases the clock and the file."""
        self.release()
        if self._lock is not None:
            self._lock.close()

    def _renew(self, released: threading.Event) -> None:
        while not released.wait(RENEW_SECONDS):
            with suppress(Unavailable), self._store.writing() as session:  # renewed later, if nobody took it
                keep_short(session)
                self.lost = self.lost or not self._of_mine(session, ends_at=self._end(session))

    def _of_mine(self, session: Session, **values: Any) -> bool:
        """Changes the row of this process; returns False if it is another's."""
        mine = update(ClockRow).where(col(ClockRow.epoch) == self._epoch).values(**values)
        return bool(session.connection().execute(mine).rowcount)

    def _place(self) -> str:
        """Names the file that this process has locked; empty while another process on this machine locks it."""
        if self._lock is None:
            with accessing(f"lock {self._lock_path}"), suppress(BlockingIOError):
                self._lock = lock(self._lock_path)
        if self._lock is None:
            return ""
        file = os.fstat(self._lock.fileno())
        machine = BOOT.read_text().strip() if BOOT.exists() else platform.node()
        return f"{machine}/{file.st_dev}/{file.st_ino}"

    def _free(self, session: Session, place: str) -> ColumnElement[bool]:
        ended = col(ClockRow.ends_at) < _now(session)
        return or_(ended, col(ClockRow.place) == place) if place else ended

    def _end(self, session: Session) -> ColumnElement[float]:
        return _now(session) + LEASE_SECONDS


class HoldersSigner:
    """Signs transactions while the process holds the clock; raises ``ClockLost`` otherwise."""

    def __init__(self, signer: TransactionSigner, store: Store) -> None:
        """``store`` checks the clock in each of its transactions."""
        self._signer, self._store = signer, store

    @property
    def address(self) -> str:
        """Checksummed address of the key."""
        return self._signer.address

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        """Returns the raw signed transaction."""
        with self._store.writing():
            pass
        return self._signer.sign_transaction(transaction)


def _now(session: Session) -> ColumnElement[Any]:
    """The database's time in unix seconds: all who share a SQLite file share a machine."""
    if session.get_bind().dialect.name == "sqlite":
        return literal(time.time())
    return extract("epoch", func.clock_timestamp())
