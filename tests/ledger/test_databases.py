"""SQLite and PostgreSQL hold the same ledger: rows, hashes, answers, audits, and what a reorganisation undoes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ledger.api.app import create_app
from ledger.audit import audit
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from ledger.store.state import tables_of_database
from protocol.chain.reading.client import Chain
from tests.conftest import until
from tests.ledger import disputes
from tests.ledger.conftest import LISTS
from tests.ledger.disputes import Dispute
from tests.ledger.test_index import rows
from tests.postgresql import new_database


@pytest.fixture
def both(chain: Chain, tmp_path: Path, postgresql: str) -> Iterator[tuple[Database, Database]]:
    """Two empty ledgers of one chain, in SQLite and in PostgreSQL."""
    opened = [Database(where, chain.deployment) for where in (tmp_path / "ledger.sqlite", new_database(postgresql))]
    yield opened[0], opened[1]
    for database in opened:
        database.close()


def test_both_databases_hold_one_ledger_through_appeals_and_a_reorganisation(
    dispute: Dispute, chain: Chain, both: tuple[Database, Database]
) -> None:
    disputes.condemn(dispute)
    snapshot = dispute.market.anvil.rpc.call("evm_snapshot")
    disputes.dispute_all(dispute)
    for database in both:
        sync(chain, database)
    forked = same_in(both)
    dispute.market.anvil.rpc.call("evm_revert", snapshot)
    dispute.market.anvil.rpc.call("anvil_mine", "0x1")
    for database in both:
        sync(chain, database)
        assert audit(chain, database).ok
    assert same_in(both) != forked


def same_in(both: tuple[Database, Database]) -> dict[str, object]:
    """The state that both hold."""
    assert rows(both[0]) == rows(both[1])
    states = []
    for database in both:
        with database.reading() as connection:
            states.append(tables_of_database(connection))
    assert states[0] == states[1]
    return dict(states[0])


def test_both_databases_give_the_same_answers(dispute: Dispute, chain: Chain, both: tuple[Database, Database]) -> None:
    disputes.told(dispute)
    told = [answers(chain, database) for database in both]
    assert told[0] == told[1]
    assert len(told[0]) > 80


def answers(chain: Chain, database: Database) -> dict[str, object]:
    """What the API says: every list in pages of five, and all that is asked about what is listed."""
    found: dict[str, object] = {}
    with TestClient(create_app(chain, database, Follower(chain, database, poll_seconds=0.02))) as http:
        until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        for path in LISTS:
            found |= pages(http, f"/{path}")
        for path in tuple(asked_about(found)):
            answer = http.get(path)
            assert answer.status_code == 200, path
            found[path] = answer.json()
    return found


def pages(http: TestClient, path: str) -> dict[str, object]:
    """Every page of a list, by its address."""
    found: dict[str, object] = {}
    address = f"{path}?limit=5"
    while True:
        found[address] = page = http.get(address).json()
        if page["next"] is None:
            return found
        address = f"{path}?limit=5&after={page['next']}"


def asked_about(found: dict[str, object]) -> Iterator[str]:
    """Addresses of everything that can be asked about what the pages list."""
    yield from ("/treasury", "/rounds?run=1", "/checkpoints?run=1", "/lineage/1/5")
    yield from ("/appeals?round=1", "/events?name=VoteRevealed", "/runs/1", "/checkpoints/1/5")
    yield from (f"/why/jobs/1/{job}" for job in range(7))
    for page in found.values():
        for item in page["items"]:  # type: ignore[index]
            match item:
                case {"node": node, "round": _, "block_number": block, "log_index": log}:
                    yield from (f"/why/entries/{block}/{log}", f"/slashes?node={node}")
                case {"round": round_, "run": _, "beacon": _}:
                    yield f"/rounds/{round_}"
                case {"owner": owner, "balance": _}:
                    yield from (f"/credits/{owner}", f"/credits/{owner}/entries")
