"""The journal of ``assize notices``: how far the chain was read, and which notice went where.

    event or condition ──> journal (cursor, what is followed, notice) ──> sending ──> delivered

A notice is written in the transaction that moves the cursor past its event, under the key of its content, and only if
that key is new: neither a restart nor a reorganisation makes a second one. Before a message goes out it is marked as
being sent. If the process is killed right then, nobody knows whether it arrived; it is not sent again, and is logged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from protocol.chain.reading.cursor import Cursor
from protocol.errors import Misconfigured, Unavailable
from protocol.node.notices.conditions import Conditions
from protocol.node.notices.fold import Followed
from protocol.node.notices.notice import Notice, NoticeKind
from protocol.write_ahead import use_write_ahead_log

_SCHEMA = """
CREATE TABLE IF NOT EXISTS places (block INTEGER PRIMARY KEY, cursor TEXT NOT NULL, followed TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS notices (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS deliveries (
    key TEXT NOT NULL, target TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (key, target)
) STRICT;
CREATE INDEX IF NOT EXISTS undelivered ON deliveries (target) WHERE state = 'waiting';
CREATE TABLE IF NOT EXISTS conditions (
    key TEXT PRIMARY KEY, episode INTEGER NOT NULL, holds INTEGER NOT NULL, ended_in INTEGER
) STRICT;
"""
_FOLLOWED = TypeAdapter(Followed)


@dataclass(frozen=True, slots=True)
class Place:
    """Position in the chain, and what was followed there."""

    cursor: Cursor
    followed: Followed


class NoticeJournal:
    """Notices and their deliveries in one directory. Not thread-safe.

    Args:
        directory: the state folder.
        targets: ids of the targets that a new notice goes to.
    """

    def __init__(self, directory: Path, targets: Iterable[str]) -> None:
        """Opens or creates the journal; raises ``Misconfigured`` if it cannot be written."""
        self._targets = tuple(targets)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "notices.sqlite", isolation_level=None)
            use_write_ahead_log(self._db)
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"the journal of notices in {directory} cannot be written: {error}") from error

    def place(self, block: int | None = None) -> Place | None:
        """Returns the newest place, or the newest one up to ``block``; None where there is none."""
        newest = 2**62 if block is None else block
        row = self._db.execute(
            "SELECT cursor, followed FROM places WHERE block <= ? ORDER BY block DESC LIMIT 1", (newest,)
        ).fetchone()
        try:
            return None if row is None else Place(Cursor.from_json(row[0]), _FOLLOWED.validate_json(row[1]))
        except (ValueError, ValidationError) as error:
            raise Misconfigured(
                "the journal of notices is damaged: move notices.sqlite away and start again"
            ) from error

    def advance(self, place: Place, notices: Iterable[Notice], now: int) -> None:
        """Writes the place and the notices on the way to it, in one transaction; forgets places that are final.

        Raises:
            Unavailable: the disk failed; nothing was written.
        """
        row = (place.cursor.number, place.cursor.to_json(), _FOLLOWED.dump_json(place.followed).decode())
        with _Writing(self._db):
            self._db.execute("DELETE FROM places WHERE block >= ?", (place.cursor.number,))
            self._db.execute("INSERT INTO places VALUES (?, ?, ?)", row)
            self._db.execute(
                "DELETE FROM places WHERE block < (SELECT max(block) FROM places WHERE block <= ?)",
                (place.cursor.oldest,),
            )
            for notice in notices:
                self._add(notice, now)

    def go_back(self, block: int) -> None:
        """Forgets the places after ``block``."""
        with _Writing(self._db):
            self._db.execute("DELETE FROM places WHERE block > ?", (block,))

    def look(self, found: Conditions, head: int, final: int, now: int) -> None:
        """Takes in which conditions hold at block ``head``: a notice for each that has begun to.

        One that does not hold any more ends once the block in which this was seen is final, so that a reorganisation
        neither ends one nor begins it again.

        Raises:
            Unavailable: the disk failed; nothing was written.
        """
        known = {key: (episode, holds, ended) for key, episode, holds, ended in self._conditions()}
        with _Writing(self._db):
            for key, notice in found.items():
                episode, holds, ended = known.get(key, (0, 0, None))
                if notice is not None and not holds:
                    self._db.execute("REPLACE INTO conditions VALUES (?, ?, 1, NULL)", (key, episode + 1))
                    self._add(Notice(notice.kind, f"{key}#{episode + 1}", notice.text), now)
                elif notice is not None and ended is not None:
                    self._db.execute("UPDATE conditions SET ended_in = NULL WHERE key = ?", (key,))
                elif notice is None and holds:
                    self._end(key, head if ended is None else ended, final)

    def waiting(self, target: str) -> list[tuple[Notice, int]]:
        """Returns what has not gone to ``target`` yet, oldest first, each with the unix second of its notice."""
        rows = self._db.execute(
            "SELECT kind, key, text, at FROM notices JOIN deliveries USING (key)"
            " WHERE target = ? AND state = 'waiting' ORDER BY notices.rowid",
            (target,),
        )
        return [(Notice(NoticeKind(kind), key, text), at) for kind, key, text, at in rows]

    def mark(self, notice: Notice, target: str, state: str) -> None:
        """Writes the state of a delivery: waiting, sending, delivered, unclear or dropped."""
        with _Writing(self._db):
            self._db.execute(
                "UPDATE deliveries SET state = ? WHERE key = ? AND target = ?", (state, notice.key, target)
            )

    def interrupted(self) -> list[str]:
        """Returns the keys of what was being sent when the process was killed, and marks it as unclear."""
        rows = self._db.execute("SELECT DISTINCT key FROM deliveries WHERE state = 'sending'").fetchall()
        with _Writing(self._db):
            self._db.execute("UPDATE deliveries SET state = 'unclear' WHERE state = 'sending'")
        return [key for (key,) in rows]

    def counts(self) -> dict[str, int]:
        """Returns the number of deliveries by state."""
        return dict(self._db.execute("SELECT state, count(*) FROM deliveries GROUP BY state").fetchall())

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def _conditions(self) -> list[tuple[str, int, int, int | None]]:
        return self._db.execute("SELECT key, episode, holds, ended_in FROM conditions").fetchall()

    def _end(self, key: str, ended: int, final: int) -> None:
        holds = int(ended > final)
        self._db.execute("UPDATE conditions SET holds = ?, ended_in = ? WHERE key = ?", (holds, ended, key))

    def _add(self, notice: Notice, now: int) -> None:
        row = (notice.key, notice.kind.value, notice.text, now)
        if self._db.execute("INSERT OR IGNORE INTO notices VALUES (?, ?, ?, ?)", row).rowcount:
            words = [(notice.key, target) for target in self._targets]
            self._db.executemany("INSERT INTO deliveries VALUES (?, ?, 'waiting')", words)


class _Writing:
    """One transaction; raises ``Unavailable`` and undoes it if the disk fails."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error as failed:
                error = failed
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise Unavailable(f"the journal of notices cannot be written: {error}") from error
