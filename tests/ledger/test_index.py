"""The database follows the chain: to its head, across reorganisations, and for one deployment only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from ledger.audit import audit
from ledger.book import MemoryBook
from ledger.facts import Credit
from ledger.fold import fold_all
from ledger.store.database import Database, read_position
from ledger.store.index import Index, record, roll_back, stored_logs, sync
from ledger.store.rows import find_fact, row_of
from ledger.store.stored_book import UNDO, nothing_held
from ledger.store.tables import TABLES, PositionRow
from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import BlockEvents, Tail
from protocol.chain.writing import calls
from protocol.errors import Misconfigured
from tests.conftest import TOKEN
from tests.ledger.conftest import IN_BOTH
from tests.ledger.scenario import Market, Story


def rows(database: Database) -> dict[str, set[tuple[object, ...]]]:
    """Every derived row."""
    with database.reading() as connection:
        return {table.name: {tuple(row) for row in connection.execute(select(table))} for table in TABLES.values()}


def folded(logs: Iterable[Log]) -> dict[str, set[tuple[object, ...]]]:
    """Every derived row after these events, by a book in memory."""
    book = MemoryBook()
    fold_all(book, logs)
    return {table.name: {tuple(row_of(fact).values()) for fact in book.all(kind)} for kind, table in TABLES.items()}


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
    with again.reading() as connection:
        assert folded(stored_logs(connection)) == before
    again.close()


@IN_BOTH
def test_whatever_was_read_is_undone_block_by_block(
    market: Market, story: Story, chain: Chain, database: Database
) -> None:
    tail, blocks, held = Tail(chain), list[BlockEvents](), nothing_held()
    while news := tail.poll():
        assert isinstance(news, list)
        blocks += news
    with database.writing() as connection:
        record(connection, blocks, oldest=0, held=held)
    assert rows(database) == folded(log for block in blocks for log in block.logs)
    assert len(blocks) > 50
    while blocks:
        step = 1 + len(blocks) % 3
        to_block = blocks[-step - 1].block.number if len(blocks) > step else 0
        blocks = blocks[:-step]
        with database.writing() as connection:
            roll_back(connection, to_block, held)
        left = folded(log for block in blocks for log in block.logs)
        assert rows(database) == left
        for kind, facts in held.items():  # and what is still remembered is what stands there
            assert {tuple(row_of(fact).values()) for fact in facts.values() if fact} <= left[TABLES[kind].name]
    with database.reading() as connection:
        assert not connection.execute(select(UNDO)).all()


def test_what_is_final_keeps_no_undoing(story: Story, chain: Chain, synced: Database) -> None:
    with synced.reading() as connection:
        cursor = read_position(connection).cursor
        kept = {row.block_number for row in connection.execute(select(UNDO))}
    assert kept
    assert min(kept) > cursor.oldest >= chain.head().number - FINALITY_DEPTH - 1


@IN_BOTH
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


@IN_BOTH
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


@IN_BOTH
def test_a_database_of_another_deployment_is_refused(chain: Chain, database: Database) -> None:
    other = replace(chain.deployment, start_hash=bytes(32))
    with pytest.raises(Misconfigured, match="another deployment"):
        Database(database.where, other)


@IN_BOTH
def test_tables_of_another_version_are_refused_or_read_from_the_chain_again(
    market: Market, story: Story, chain: Chain, database: Database
) -> None:
    sync(chain, database)
    before = rows(database)
    with database.writing() as connection:
        position = connection.execute(select(PositionRow.deployment)).scalar_one()
        older = json.dumps(json.loads(position) | {"tables": 1}, sort_keys=True)
        connection.execute(update(PositionRow).values(deployment=older))
        connection.execute(text("DROP TABLE service"))
    with pytest.raises(Misconfigured, match="another version of Assize"):
        Database(database.where, chain.deployment)
    with closing(Database(database.where, chain.deployment, rebuilds=True)) as rebuilt:
        assert rebuilt.rebuilt
        sync(chain, rebuilt)
        assert rows(rebuilt) == before
    with closing(Database(database.where, chain.deployment, rebuilds=True)) as again:
        assert not again.rebuilt
        assert rows(again) == before


def test_a_file_that_is_no_database_is_refused(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, only text that is long enough to be looked at" * 20)
    with pytest.raises(Misconfigured, match="cannot open"):
        Database(tmp_path / "text", chain.deployment)
