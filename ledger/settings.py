"""Settings of the ledger: chain, deployment and database. It has no key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.store.database import Database
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured
from protocol.node.console import note
from protocol.node.profile import Profile

DEFAULT_STATE_DIR = "~/.assize/ledger"
STATE_DIR_VARIABLE = "ASSIZE_LEDGER_STATE_DIR"


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Built once from the command line.

    Args:
        rpc_url: JSON-RPC endpoint, or several with commas between them.
        addresses: address file of the deployment.
        database: file or database URL; None takes one of its own for each deployment.
    """

    rpc_url: str
    addresses: Path
    database: str | None

    @contextmanager
    def opened(self) -> Iterator[tuple[Chain, Database]]:
        """Connects to the chain and opens the database; closes both in the end.

        Tables of another version of Assize are emptied, which is said in one line.

        Raises:
            Unavailable: no RPC answers.
            Misconfigured: another chain or deployment, or a database of another one.
        """
        with closing(Chain.connect(self.rpc_url, self.addresses)) as chain:
            where = self.database or default_database(chain.deployment)
            with closing(Database(where, chain.deployment, rebuilds=True)) as database:
                if database.rebuilt:
                    note(f"{database.shown} was made by another version of Assize: it is read from the chain again")
                yield chain, database


def versions_folder(database: Database, deployment: Deployment) -> Path:
    """Returns the folder for published files of versions: beside a database file, else in the state folder."""
    path = database.where.removeprefix("sqlite:///")
    file = default_database(deployment) if "://" in path else Path(path).expanduser()
    return file.with_name(f"{file.name}.versions")


def default_database(deployment: Deployment) -> Path:
    """Returns the file of one deployment: chain id, Rounds address and the hash of the start block tell them apart.

    Raises:
        Misconfigured: the user has no home directory.
    """
    try:
        told = os.environ.get(STATE_DIR_VARIABLE) or Profile.current().table("ledger").get("state_dir")
        directory = Path(told or DEFAULT_STATE_DIR).expanduser()
    except RuntimeError as error:
        raise Misconfigured(f"there is no folder for the ledger's database ({error}); give --db") from error
    return directory / f"{deployment.chain_id}-{deployment.label}.sqlite"
