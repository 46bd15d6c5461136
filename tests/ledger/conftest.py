"""A market's whole life on a real chain, and its ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.reading.client import Chain
from protocol.node.wallet import Wallet
from tests.conftest import Anvil
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import Market, Story, tell
from tests.postgresql import new_database

LISTS = ("credits", "rounds", "nodes", "runs", "checkpoints", "appeals", "slashes", "events", "validators", "fairness")
"""Paths of the API that need no more."""

IN_BOTH = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
"""For tests of what the database itself has a part in."""


@pytest.fixture
def market(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Market]:
    """An empty market."""
    made = Market(chain, anvil, make_wallet, tmp_path)
    yield made
    made.close()


@pytest.fixture
def story(market: Market) -> Story:
    """A run with three rounds behind it."""
    return tell(market)


@pytest.fixture
def dispute(market: Market) -> Dispute:
    """A run with appeals, before its first round."""
    return disputes.begin(market)


@pytest.fixture
def database(chain: Chain, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty ledger: in SQLite, and in PostgreSQL too where a test is to hold ``IN_BOTH``."""
    in_postgresql = getattr(request, "param", "sqlite") == "postgresql"
    where = new_database(request.getfixturevalue("postgresql")) if in_postgresql else tmp_path / "ledger.sqlite"
    opened = Database(where, chain.deployment)
    yield opened
    opened.close()


@pytest.fixture
def synced(story: Story, chain: Chain, database: Database) -> Database:
    """The ledger of ``story``."""
    sync(chain, database)
    return database


@pytest.fixture
def addresses(chain: Chain, tmp_path: Path) -> Path:
    """The deployment's address file."""
    path = tmp_path / "addresses.json"
    path.write_text(json.dumps(chain.deployment.to_json()))
    return path
