"""A database in which every text that a stranger could have chosen is hostile."""

from __future__ import annotations

import json

from sqlalchemy import Text, bindparam, select

from ledger.store.database import Database
from ledger.store.index import EVENT
from ledger.store.tables import TABLES
from tests.ledger.scenario import HOSTILE

STRANGERS = ("uri", "rules_uri")
"""Fields of events that hold text as its sender wrote it."""


def spoil(database: Database) -> None:
    """Puts hostile text in the place of all text but keys: in facts, and where an event holds a stranger's words."""
    place = (EVENT.c.block_number == bindparam("block"), EVENT.c.log_index == bindparam("log"))
    with database.writing() as connection:
        for table in TABLES.values():
            for column in table.columns:
                if isinstance(column.type, Text) and not column.primary_key:
                    connection.execute(table.update().values({column.name: HOSTILE[:200]}))
        spoilt = []
        for row in connection.execute(select(EVENT)):
            payload = json.loads(row.payload)
            if any(name in payload for name in STRANGERS):
                payload |= {name: HOSTILE for name in STRANGERS if name in payload}
                spoilt.append({"block": row.block_number, "log": row.log_index, "payload": json.dumps(payload)})
        connection.execute(EVENT.update().where(*place), spoilt)
