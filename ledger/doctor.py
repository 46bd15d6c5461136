"""Examinations of ``assize ledger doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ledger.settings import LedgerSettings, default_database
from ledger.store.database import Database, OtherTables
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured
from protocol.node.commands.doctor import examine_on_chain
from protocol.node.doctor import Examination, Result, disk, examine, metrics_port
from protocol.node.telemetry import METRICS_HOST


def diagnose(settings: LedgerSettings, port: int = 0, host: str = METRICS_HOST) -> Iterator[Result]:
    """Examines disk, metrics port, chain, clock and database."""

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        return (Examination("database", lambda: _database(settings, chain), "give another one with --db"),)

    yield from examine((*_folder(settings), metrics_port(port, host)))
    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _folder(settings: LedgerSettings) -> tuple[Examination, ...]:
    """Examines the disk of the database, unless that is a server's."""
    if settings.database and "://" in settings.database:
        return ()
    if settings.database:
        return (disk(Path(settings.database).expanduser().parent),)
    try:
        return (disk(default_database(Deployment.load(settings.addresses)).parent),)
    except Misconfigured:  # the examination of the chain says why
        return ()


def _database(settings: LedgerSettings, chain: Chain) -> str:
    where = settings.database or default_database(chain.deployment)
    try:
        with closing(Database(where, chain.deployment)) as database:
            return f"{database.shown} opens"
    except OtherTables as found:  # such as before the first start of a new version
        return str(found)
