"""The ledger's state as one hash: what two auditors compare.

    row     JSON list of the fact's values as text, in the order of its fields, without spaces
    table   sha256 of its rows, each ended by a newline, in the order of their keys
    state   sha256 of a line for the chain and the block, then a line for each table: name, rows, hash

The text is that of the database: integers in decimal, bitmaps and bytes in hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ledger.book import MemoryBook
from ledger.facts import KINDS, Fact, key_of
from ledger.facts.fact import CODECS, Codec, annotations_of
from ledger.store.rows import fact_of
from ledger.store.tables import TABLES, snake

FORMAT = "assize-ledger/2"


@dataclass(frozen=True, slots=True)
class TableState:
    """Number of rows, and their hash."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Everything the ledger says of the chain up to a block. ``digest`` is 0x-hexadecimal, as are those of tables."""

    chain_id: int
    block_number: int
    block_hash: str
    tables: dict[str, TableState]

    @property
    def digest(self) -> str:
        """The hash of all of it."""
        whole = hashlib.sha256(f"{FORMAT} {self.chain_id} {self.block_number} {self.block_hash}\n".encode())
        for name, table in sorted(self.tables.items()):
            whole.update(f"{name} {table.rows} {table.digest}\n".encode())
        return "0x" + whole.hexdigest()


def texts(fact: Fact) -> dict[str, str]:
    """Each field as text."""
    return {name: write(getattr(fact, name)) for name, (write, _) in codecs(type(fact)).items()}


def fact_from(kind: type[Fact], row: dict[str, str]) -> Fact:
    """The fact of a row of texts. ``ValueError`` where it is none, or not written exactly as ``texts`` writes it."""
    if any(not isinstance(text, str) for text in row.values()):
        raise ValueError("invalid value: expected text")
    try:
        fact = kind(**{name: read(row[name]) for name, (_, read) in codecs(kind).items()})
    except KeyError as error:
        raise ValueError(f"{error} is neither a field nor a value of one") from error
    if texts(fact) != row:
        raise ValueError("another text than the ledger writes for it")
    return fact


def codecs(kind: type[Fact]) -> dict[str, Codec]:
    """Returns, for each field of a kind of fact, the functions that write and read it as text."""
    return _BY_KIND[kind]


_BY_KIND = {kind: {name: CODECS[annotation] for name, annotation in annotations_of(kind).items()} for kind in KINDS}


def table_state(facts: Iterable[Fact]) -> TableState:
    """The state of one table; its facts must come in the order of their keys."""
    digest, rows = hashlib.sha256(), 0
    for fact in facts:
        digest.update(json.dumps(list(texts(fact).values()), separators=(",", ":"), ensure_ascii=False).encode())
        digest.update(b"\n")
        rows += 1
    return TableState(rows, "0x" + digest.hexdigest())


def tables_of_book(book: MemoryBook) -> dict[str, TableState]:
    """The state of every table of a book."""
    return {snake(kind): table_state(sorted(book.all(kind), key=key_of)) for kind in KINDS}


def tables_of_database(connection: Connection) -> dict[str, TableState]:
    """The state of every table of a database."""
    return {snake(kind): table_state(stored(connection, kind)) for kind in KINDS}


def stored(connection: Connection, kind: type[Fact]) -> Iterable[Fact]:
    """Yields the facts of a kind in the order of their keys, which is the same in every database."""
    table = TABLES[kind]
    rows = connection.execute(
        select(table).order_by(*(table.c[name] for name in kind.KEY)).execution_options(yield_per=1_000)
    )
    return (fact_of(kind, row) for row in rows)
