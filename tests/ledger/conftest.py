"""A market's whole life on a real chain, and its ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.node.wallet import Wallet
from tests.conftest import Anvil, wallet_on
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import HOSTILE, Market, Story, tell, terms_of
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


@pytest.fixture(scope="module")
def told_once(
    anvil_process: Anvil, deployment: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """The chain of a file's tests from its first test with ``shared_story`` on."""
    snapshot = anvil_process.rpc.call("evm_snapshot")
    anvil_process.rpc.call("anvil_setTime", int(time.time()))
    with closing(Chain(anvil_process.url, deployment)) as chain:
        directory = tmp_path_factory.mktemp("told")
        with closing(Market(chain, anvil_process, partial(wallet_on, anvil_process), directory)) as market:
            yield tell(market)
    anvil_process.rpc.call("evm_revert", snapshot)


@pytest.fixture(scope="module")
def everything(told_once: Story) -> Story:
    """A chain with a whole story, one with appeals and taints, and a run whose parties name hostile places."""
    market = told_once.market
    run = market.run
    disputes.told(disputes.begin(market))
    requester = market.rich("hostile", "Credits")
    market.send(requester, calls.buy(market.deployment, 10**20))
    terms = terms_of(told_once.coordinator, told_once.trainer)
    market.send(requester, calls.open_run(market.deployment, terms, b"\x07" * 32, HOSTILE))
    market.run = run
    market.anvil.rpc.call("anvil_mine", "0x3")
    return told_once


@pytest.fixture
def shared_story(told_once: Story, market: Market) -> Story:
    """``story`` for a file that undoes no block: told once, and as it was for each test."""
    market.run = told_once.market.run
    return replace(told_once, market=market)


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
