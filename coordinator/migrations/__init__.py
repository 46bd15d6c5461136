"""Revisions of the coordinator's tables, applied with Alembic when a database is opened.

    no revision, no tables    every revision is applied
    no revision, tables       made before revisions were counted: taken over as 0001 if its columns are those
    a known revision          the later ones are applied
    an unknown revision       refused: a newer version of Assize made it

Processes of the version before go on while those of this one are started, so a revision only adds: new tables, or
columns with a server default. The code before revision 0001 refuses a table with columns that it does not know, so what
revisions after it add goes into tables of its own. A revision is a file of ``versions/``, with ``revision`` and
``down_revision``; it names its tables itself, since ``coordinator.tables`` goes on changing. There is no way back: the
mirror is filled again from the chain.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, inspect, text

from protocol.errors import Misconfigured

LOCK_SECONDS = 60
"""Longest wait for another process that is migrating the same PostgreSQL database."""

LOCK = 0x415353495A45
"""The advisory lock of PostgreSQL that is held while a database is migrated."""

_SCRIPTS = Path(__file__).parent
_ALONE = threading.Lock()
"""Alembic keeps the migration under way in a global variable."""


def migrate(engine: Engine, metadata: MetaData) -> str:
    """Applies the revisions that a database lacks, all or none, one process at a time; says what was done.

    Args:
        engine: whose connections take SQLite's lock when they begin.
        metadata: the tables that this version reads and writes.

    Raises:
        Misconfigured: the database has an unknown revision, or other columns.
        sqlalchemy.exc.DBAPIError: it does not answer, or another process holds it locked.
    """
    done = f"at revision {', '.join(newest())}"
    with engine.connect().execution_options(writes=False) as connection:
        held = revisions_of(connection)
        if set(held) == set(newest()):
            check(connection, metadata)
            return done
    with _ALONE, engine.connect() as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        before, had_tables = revisions_of(connection), bool(inspect(connection).get_table_names())
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
        command.upgrade(config, "heads")
        check(connection, metadata)
    if set(before) == set(newest()):
        return done  # another process has just done it
    return f"{done}, " + (f"upgraded from {', '.join(before) or 'before 0001'}" if had_tables else "made anew")


def state_of(connection: Connection) -> str:
    """Says at which revision a database is, and what ``migrate`` would do; raises ``Misconfigured`` as that does."""
    held = revisions_of(connection)
    if set(held) == set(newest()):
        return f"at revision {', '.join(held)}"
    return f"at revision {', '.join(held) or 'none'}; the start of a process brings it to {', '.join(newest())}"


def revisions_of(connection: Connection) -> tuple[str, ...]:
    """Returns the revisions that a database is at; none for one that has no tables, or older ones.

    Raises ``Misconfigured`` for a revision of a newer version.
    """
    held = MigrationContext.configure(connection).get_current_heads()
    known = {each.revision for each in ScriptDirectory(str(_SCRIPTS)).walk_revisions()}
    if unknown := sorted(set(held) - known):
        raise Misconfigured(
            f"the coordinator's database is at revision {unknown[0]}, this version of Assize knows up to "
            f"{', '.join(newest())}: update Assize"
        )
    return tuple(sorted(held))


def newest() -> tuple[str, ...]:
    """Returns the newest revisions."""
    return tuple(sorted(ScriptDirectory(str(_SCRIPTS)).get_heads()))


def check(connection: Connection, metadata: MetaData, exactly: bool = False) -> None:
    """Raises ``Misconfigured`` if a table lacks columns of ``metadata``; if ``exactly``, also if it has others."""
    held = inspect(connection)
    names = held.get_table_names()
    for table in metadata.sorted_tables:
        there = held.get_columns(table.name) if table.name in names else []
        columns, expected = {each["name"] for each in there}, set(table.columns.keys())
        if not columns >= expected or (exactly and columns != expected):
            raise Misconfigured(
                f"the coordinator's database belongs to another revision of Assize, its table {table.name!r} has other "
                "columns: delete it between rounds; the chain fills it again"
            )
