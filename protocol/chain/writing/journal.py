"""The sender's intents and signed transactions, on disk before they are broadcast.

    planned ──> signed ──> broadcast <──> mined ──> final
       │           └───────────┴────────────┴─────> failed
       └─ a refused simulation removes the intent: nothing was signed, and the key can be used again

An intent is one effect on chain, identified by its key. It may have several signed transactions (attempts) with one
nonce, of which at most one can be mined.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from protocol.chain.writing.calls import Call
from protocol.errors import Misconfigured, Unavailable
from protocol.write_ahead import use_write_ahead_log

SCHEMA = """
CREATE TABLE IF NOT EXISTS belongs (to_whom TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS intents (
    key TEXT PRIMARY KEY, receiver TEXT NOT NULL, data BLOB NOT NULL, value TEXT NOT NULL, description TEXT NOT NULL,
    state TEXT NOT NULL, nonce INTEGER, failure TEXT, block_number INTEGER, created_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS intents_by_state ON intents (state);
CREATE TABLE IF NOT EXISTS attempts (
    tx_hash BLOB PRIMARY KEY, key TEXT NOT NULL REFERENCES intents (key), raw BLOB NOT NULL,
    gas INTEGER NOT NULL, max_fee INTEGER NOT NULL, priority_fee INTEGER NOT NULL, signed_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS attempts_by_key ON attempts (key);
"""

PLANNED, SIGNED, BROADCAST = "planned", "signed", "broadcast"
MINED, FINAL, FAILED = "mined", "final", "failed"


@dataclass(frozen=True, slots=True)
class Intent:
    """An effect that happens at most once: ``failure`` says why it cannot, ``block_number`` where it did."""

    key: str
    call: Call
    state: str
    nonce: int | None
    failure: str | None
    block_number: int | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One signed transaction of an intent; fees in wei per gas."""

    tx_hash: bytes
    key: str
    raw: bytes
    gas: int
    max_fee: int
    priority_fee: int
    signed_at: float


class _Connection(sqlite3.Connection):
    """A connection that raises ``Unavailable`` for operational errors."""

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*statement)
        except sqlite3.OperationalError as error:
            raise Unavailable(f"cannot use the journal of sent transactions: {error}") from error


class Journal:
    """The SQLite file of a sender. Callers must synchronise threads; every method is one transaction.

    Every method raises ``Unavailable`` if the file is locked or the disk is full, and writes nothing then.
    """

    def __init__(self, path: Path, to_whom: str) -> None:
        """Opens or creates the journal of a key and chain, which ``to_whom`` names.

        Raises:
            Misconfigured: the file cannot be written, or belongs to another key or chain.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=_Connection)
            use_write_ahead_log(self._db)
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
            self._db.execute("INSERT INTO belongs SELECT ? WHERE NOT EXISTS (SELECT * FROM belongs)", (to_whom,))
            (owner,) = self._db.execute("SELECT to_whom FROM belongs").fetchone()
        except (OSError, sqlite3.Error, Unavailable) as error:
            raise Misconfigured(f"cannot write the journal {path}: {error}") from error
        if owner != to_whom:
            raise Misconfigured(
                f"the journal {path} belongs to {owner}, not to {to_whom}; give another state directory"
            )

    def intent(self, key: str) -> Intent | None:
        """Returns the intent of this key, or None."""
        rows = self._intents("WHERE key = ?", key)
        return rows[0] if rows else None

    def unfinished(self) -> list[Intent]:
        """Returns the intents signed or broadcast, by nonce."""
        return self._intents("WHERE state IN (?, ?) ORDER BY nonce", SIGNED, BROADCAST)

    def mined(self) -> list[Intent]:
        """Returns the intents mined and not known to be final, by nonce."""
        return self._intents("WHERE state = ? ORDER BY nonce", MINED)

    def waiting(self) -> tuple[int, float]:
        """Returns how many intents are signed or broadcast, and when the oldest was signed first; 0 without any."""
        count, oldest = self._db.execute(
            "SELECT count(DISTINCT key), min(signed_at) FROM intents JOIN attempts USING (key) WHERE state IN (?, ?)",
            (SIGNED, BROADCAST),
        ).fetchone()
        return count, oldest or 0.0

    def newest(self, count: int) -> list[Intent]:
        """Returns so many intents that were signed, the newest first."""
        return self._intents("WHERE nonce IS NOT NULL ORDER BY nonce DESC LIMIT ?", count)

    def watched(self) -> bool:
        """Returns true if any intent may still change: it is pending, or mined and not final."""
        query = "SELECT 1 FROM intents WHERE state IN (?, ?, ?) LIMIT 1"
        return self._number(query, SIGNED, BROADCAST, MINED) is not None

    def highest_nonce(self) -> int | None:
        """Returns the highest nonce ever signed."""
        return self._number("SELECT max(nonce) FROM intents")

    def newest_block(self) -> int:
        """Returns the newest block in which an intent was mined; 0 before any was."""
        return self._number("SELECT max(block_number) FROM intents") or 0

    def highest_final_nonce(self) -> int | None:
        """Returns the highest nonce of a final intent."""
        return self._number("SELECT max(nonce) FROM intents WHERE state = ?", FINAL)

    def has_mined(self, nonce: int) -> bool:
        """Returns true if an intent with this nonce was mined."""
        query = "SELECT 1 FROM intents WHERE state IN (?, ?) AND nonce = ?"
        return self._number(query, MINED, FINAL, nonce) is not None

    def attempts(self, key: str) -> list[Attempt]:
        """Returns the intent's signed transactions, oldest first."""
        rows = self._db.execute(
            "SELECT tx_hash, key, raw, gas, max_fee, priority_fee, signed_at FROM attempts"
            " WHERE key = ? ORDER BY rowid",
            (key,),
        )
        return [Attempt(*row) for row in rows]

    def plan(self, key: str, call: Call) -> None:
        """Records a new intent."""
        self._db.execute(
            "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?)",
            (key, call.to, call.data, str(call.value), call.description, PLANNED, time.time()),
        )

    def drop(self, key: str) -> None:
        """Deletes an intent for which nothing was signed."""
        self._db.execute("DELETE FROM intents WHERE key = ? AND state = ?", (key, PLANNED))

    def sign(self, nonce: int, attempt: Attempt) -> None:
        """Records a signed transaction before it is broadcast.

        Only this write waits for the disk: whatever else a power cut loses can be read from the chain.
        """
        self._db.execute("PRAGMA synchronous=FULL")
        self._write_signed(nonce, attempt)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def _write_signed(self, nonce: int, attempt: Attempt) -> None:
        with self._db:  # rolls back after an error
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("UPDATE intents SET state = ?, nonce = ? WHERE key = ?", (SIGNED, nonce, attempt.key))
            self._db.execute("INSERT OR IGNORE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(attempt))
            self._db.execute("COMMIT")

    def mark(self, key: str, state: str, *, block_number: int | None = None, failure: str | None = None) -> None:
        """Records an intent's state, with the block that its transaction was mined in, or why it failed for good."""
        self._db.execute(
            "UPDATE intents SET state = ?, block_number = ?, failure = ? WHERE key = ?",
            (state, block_number, failure, key),
        )

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _number(self, query: str, *parameters: object) -> int | None:
        row = self._db.execute(query, parameters).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _intents(self, where: str, *parameters: object) -> list[Intent]:
        rows = self._db.execute(
            "SELECT key, receiver, data, description, value, state, nonce, failure, block_number FROM intents " + where,
            parameters,
        )
        return [
            Intent(key, Call(receiver, data, description, int(value)), state, nonce, failure, block_number)
            for key, receiver, data, description, value, state, nonce, failure, block_number in rows
        ]
