"""Examinations of ``assize ledger doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ledger.settings import LedgerSettings, default_database
from ledger.store.database import Database
from protocol.chain.reading.client import Chain
from protocol.node.commands.doctor import examine_on_chain
from protocol.node.doctor import Examination, Result


def diagnose(settings: LedgerSettings) -> Iterator[Result]:
    """Examines chain, clock and database."""

    def on_chain(chain: Chain) -> tuple[Examination, ...]:
        return (Examination("database", lambda: _database(settings, chain), "give another one with --db"),)

    yield from examine_on_chain(settings.rpc_url, settings.addresses, on_chain)


def _database(settings: LedgerSettings, chain: Chain) -> str:
    where = settings.database or default_database(chain.deployment)
    with closing(Database(where, chain.deployment)) as database:
        return f"{database.shown} opens"
