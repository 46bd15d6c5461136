"""Options shared by the ledger commands, and opening of chain and database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ledger.api.published import PublishedVersions
    from ledger.store.database import Database
    from protocol.chain.reading.client import Chain

Rpc = Annotated[
    str,
    typer.Option(
        "--rpc",
        envvar=["ASSIZE_LEDGER_RPC_URL", "ASSIZE_RPC_URL"],
        help="JSON-RPC endpoint, or several with commas between them.",
    ),
]
Addresses = Annotated[
    Path,
    typer.Option(
        "--addresses", envvar=["ASSIZE_LEDGER_ADDRESSES", "ASSIZE_ADDRESSES"], help="Address file of the deployment."
    ),
]
Db = Annotated[
    str | None,
    typer.Option("--db", envvar="ASSIZE_LEDGER_DATABASE", help="SQLite file or database URL; one is made otherwise."),
]
Coordinators = Annotated[
    list[str] | None,
    typer.Option(
        "--coordinator",
        envvar="ASSIZE_LEDGER_COORDINATORS",
        help="URL of a run's coordinator, to fetch artifacts and jurors' evidence from; may be repeated.",
    ),
]
Relays = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        metavar="URL",
        envvar="ASSIZE_LEDGER_RELAYS",
        help="Relay or origin of weights, for manifests, rewards and tokenizers of versions; may be repeated.",
    ),
]
MetricsPort = Annotated[
    int,
    typer.Option(envvar="ASSIZE_LEDGER_METRICS_PORT", min=0, max=65_535, help="Port of Prometheus metrics; 0: none."),
]
MetricsHost = Annotated[str, typer.Option(envvar="ASSIZE_LEDGER_METRICS_HOST", help="Address to serve them at.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: wei as strings, bytes in hexadecimal.")]
NoSync = Annotated[bool, typer.Option("--no-sync", help="Do not read the chain first.")]
LOCAL = "http://127.0.0.1:8545"
LARGEST = 2**63 - 1
"""No round, run, version or block has a larger number, and no database knows one."""


@contextmanager
def opened(rpc: str, addresses: Path, db: str | None, no_sync: bool) -> Iterator[tuple[Chain, Database]]:
    """The chain and the database of a command, which has read up to the head unless told not to."""
    from ledger.settings import LedgerSettings
    from ledger.store.index import sync as synchronise

    with LedgerSettings(rpc, addresses, db).opened() as (chain, database):
        if not no_sync:
            synchronise(chain, database)
        yield chain, database


@contextmanager
def published_by(relays: list[str] | None, chain: Chain, database: Database) -> Iterator[PublishedVersions | None]:
    """Yields the published files of versions as these relays have them; None without relays."""
    if not relays:
        yield None
        return
    from ledger.api.published import PublishedVersions
    from ledger.settings import versions_folder

    folder = versions_folder(database, chain.deployment)
    with closing(PublishedVersions(chain.deployment, database, relays, folder)) as published:
        yield published
