"""What a sender means to do and has done, on disk before the chain hears of it.

    planned ──> signed ──> broadcast ──> mined
       │           └───────────┴───────> failed
       └─ a refused simulation removes the intent: nothing was signed, the same key may be tried again

An intent is one effect on chain, named by its key. It may take several signed transactions (attempts) of one nonce,
of which at most one can be mined.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from protocol.chain.calls import Call
from protocol.errors import Misconfigured

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

PLANNED, SIGNED, BROADCAST, MINED, FAILED = "planned", "signed", "broadcast", "mined", "failed"


@dataclass(frozen=True, slots=True)
class Intent:
    """One effect meant to happen once. ``failure`` says why it will not, ``block_number`` where it did."""

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


class Journal:
    """The sqlite file behind a sender. Its caller keeps threads apart; every method is one transaction."""

    def __init__(self, path: Path, to_whom: str) -> None:
        """Opens or creates the journal; ``to_whom`` names the key and the chain it is for.

        Raises:
            Misconfigured: it cannot be written, or is another key's or another chain's.
        """
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
            self._db.execute("INSERT INTO belongs SELECT ? WHERE NOT EXISTS (SELECT * FROM belongs)", (to_whom,))
            (owner,) = self._db.execute("SELECT to_whom FROM belongs").fetchone()
        except sqlite3.Error as error:
            raise Misconfigured(f"cannot write the journal {path}: {error}") from error
        if owner != to_whom:
            raise Misconfigured(f"the journal {path} is of {owner}, not of {to_whom}; give another state directory")

    def intent(self, key: str) -> Intent | None:
        """The intent of this key."""
        rows = self._intents("WHERE key = ?", key)
        return rows[0] if rows else None

    def unfinished(self) -> list[Intent]:
        """Intents signed or broadcast, by nonce."""
        return self._intents("WHERE state IN (?, ?) ORDER BY nonce", SIGNED, BROADCAST)

    def mined_from(self, block_number: int) -> list[Intent]:
        """Intents mined in this block or later, by nonce."""
        return self._intents("WHERE state = ? AND block_number >= ? ORDER BY nonce", MINED, block_number)

    def highest_nonce(self) -> int | None:
        """The highest nonce of an intent that is not finished."""
        (nonce,) = self._db.execute(
            "SELECT max(nonce) FROM intents WHERE state IN (?, ?)", (SIGNED, BROADCAST)
        ).fetchone()
        return None if nonce is None else int(nonce)

    def attempts(self, key: str) -> list[Attempt]:
        """The intent's signed transactions, oldest first."""
        rows = self._db.execute(
            "SELECT tx_hash, key, raw, gas, max_fee, priority_fee, signed_at FROM attempts"
            " WHERE key = ? ORDER BY rowid",
            (key,),
        )
        return [Attempt(*row) for row in rows]

    def plan(self, key: str, call: Call) -> None:
        """Notes a new intent."""
        self._db.execute(
            "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?)",
            (key, call.to, call.data, str(call.value), call.description, PLANNED, time.time()),
        )

    def drop(self, key: str) -> None:
        """Forgets an intent of which nothing was signed."""
        self._db.execute("DELETE FROM intents WHERE key = ? AND state = ?", (key, PLANNED))

    def sign(self, nonce: int, attempt: Attempt) -> None:
        """Notes a signed transaction, before anybody else sees it.

        Only this write waits for the disk: what a power cut may take of the others, the chain itself can tell.
        """
        self._db.execute("PRAGMA synchronous=FULL")
        self._write_signed(nonce, attempt)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def _write_signed(self, nonce: int, attempt: Attempt) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("UPDATE intents SET state = ?, nonce = ? WHERE key = ?", (SIGNED, nonce, attempt.key))
            self._db.execute(
                "INSERT OR IGNORE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt.tx_hash,
                    attempt.key,
                    attempt.raw,
                    attempt.gas,
                    attempt.max_fee,
                    attempt.priority_fee,
                    attempt.signed_at,
                ),
            )

    def mark_broadcast(self, key: str) -> None:
        """An RPC has taken the newest transaction."""
        self._db.execute("UPDATE intents SET state = ?, block_number = NULL WHERE key = ?", (BROADCAST, key))

    def mark_mined(self, key: str, block_number: int) -> None:
        """It happened."""
        self._db.execute("UPDATE intents SET state = ?, block_number = ? WHERE key = ?", (MINED, block_number, key))

    def mark_failed(self, key: str, failure: str) -> None:
        """It will not happen, and why."""
        self._db.execute("UPDATE intents SET state = ?, failure = ? WHERE key = ?", (FAILED, failure, key))

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _intents(self, where: str, *parameters: object) -> list[Intent]:
        rows = self._db.execute(
            "SELECT key, receiver, data, description, value, state, nonce, failure, block_number FROM intents " + where,
            parameters,
        )
        return [
            Intent(key, Call(receiver, data, description, int(value)), state, nonce, failure, block_number)
            for key, receiver, data, description, value, state, nonce, failure, block_number in rows
        ]
