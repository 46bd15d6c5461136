"""The database follows the chain: to its head, across reorganisations, and for one deployment only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from ledger.audit import audit
from ledger.database import Database, find_fact, read_position
from ledger.facts import Credit
from ledger.index import Index, rebuild, stored_logs, sync
from ledger.tables import TABLES
from protocol.chain import calls
from protocol.chain.client import Chain
from protocol.errors import Misconfigured
from tests.conftest import TOKEN
from tests.ledger.scenario import Market, Story


def rows(database: Database) -> dict[str, set[tuple[object, ...]]]:
    """Every derived row."""
    with database.reading() as connection:
        return {table.name: {tuple(row) for row in connection.execute(select(table))} for table in TABLES.values()}


def test_step_by_step_and_at_once_give_the_same_tables(
    market: Market, story: Story, chain: Chain, database: Database, tmp_path: Path
) -> None:
    sync(chain, database)
    again = Database(tmp_path / "again.sqlite", chain.deployment)
    index = Index(chain, again)
    while index.advance():
        pass
    before = rows(again)
    assert before == rows(database)
    with again.writing() as connection:
        rebuild(connection)
    assert rows(again) == before
    again.close()


def test_a_reorganisation_is_rolled_back_and_read_again(market: Market, chain: Chain, database: Database) -> None:
    owner = market.rich("owner", "Credits")
    snapshot = market.anvil.rpc.call("evm_snapshot")
    market.send(owner, calls.buy(chain.deployment, TOKEN))
    sync(chain, database)
    market.anvil.rpc.call("evm_revert", snapshot)
    market.anvil.rpc.call("anvil_mine", "0x3")
    sync(chain, database)
    with database.reading() as connection:
        assert find_fact(connection, Credit, owner.address) is None
        assert "CreditsBought" not in {type(log.event).__name__ for log in stored_logs(connection)}
        assert read_position(connection).block_hash == chain.head().hash
    assert audit(chain, database).ok


def test_two_indexes_share_one_database_without_repeating_an_event(
    market: Market, chain: Chain, database: Database
) -> None:
    first, second = Index(chain, database), Index(chain, database)
    owner = market.rich("owner", "Credits")
    market.send(owner, calls.buy(chain.deployment, TOKEN))
    first.sync()
    second.sync()
    market.send(owner, calls.buy(chain.deployment, TOKEN))
    second.sync()
    first.sync()
    with database.reading() as connection:
        credit = find_fact(connection, Credit, owner.address)
    assert credit is not None
    assert credit.balance == 2 * TOKEN


def test_a_database_of_another_deployment_is_refused(chain: Chain, database: Database) -> None:
    other = replace(chain.deployment, start_hash=bytes(32))
    with pytest.raises(Misconfigured, match="another deployment"):
        Database(database.where, other)


def test_a_file_that_is_no_database_is_refused(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, only text that is long enough to be looked at" * 20)
    with pytest.raises(Misconfigured, match="cannot open"):
        Database(tmp_path / "text", chain.deployment)
