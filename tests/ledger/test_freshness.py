"""The top of every page: a ledger that lags, forks or has halted says so."""

from __future__ import annotations

import time

from fastapi.testclient import TestClient

from ledger.api.app import create_app
from ledger.explorer.freshness import judge
from ledger.explorer.links import amount
from ledger.queries.lookup import At
from ledger.store.database import Database
from ledger.store.follower import Follower
from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.node.commands.health import ANSWER_SECONDS
from tests.conftest import TOKEN, Anvil, until
from tests.ledger.scenario import Story, pages_of

HTML = {"Accept": "text/html"}
HERE = At(100, "0xab", 90)


def test_a_ledger_at_the_head_says_nothing_further() -> None:
    assert judge(HERE, 100, True, False, "").says == ""
    assert not judge(HERE, 105, True, False, "").alarming
    assert judge(HERE, 99, True, False, "").state == "following", "the RPC may be behind the ledger"


def test_a_ledger_that_is_not_current_says_why() -> None:
    for state, head, same, halted, problem in (
        ("behind", 150, True, False, ""),
        ("behind", 101, True, False, "the RPC is slow"),
        ("forked", 101, False, False, ""),
        ("halted", 100, True, True, "finality moved"),
        ("unknown", None, True, False, "nobody answers"),
    ):
        found = judge(HERE, head, same, halted, problem)
        assert (found.state, found.alarming) == (state, True)
        assert problem in found.says
        assert found.says


def test_a_page_of_a_lagging_ledger_says_so_at_its_top(chain: Chain, anvil: Anvil, database: Database) -> None:
    with TestClient(create_app(chain, database, Follower(chain, database, poll_seconds=1_000))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        anvil.rpc.call("anvil_mine", hex(30))
        page = client.get("/", headers=HTML).text
    assert "30 blocks behind" in page
    assert page.index("The ledger is 30 blocks behind the chain") < page.index("<main")


def test_health_answers_soon_while_the_rpc_hangs_so_that_nobody_starts_the_ledger_again(
    chain: Chain, anvil: Anvil, database: Database
) -> None:
    with TestClient(create_app(chain, database, Follower(chain, database, poll_seconds=1_000))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        with anvil.hanging():
            began = time.monotonic()
            answer = client.get("/health")
            seconds = time.monotonic() - began
        assert (answer.status_code, answer.json()["behind"]) == (200, None)
        assert "does not answer within" in answer.json()["problem"]
        assert seconds < ANSWER_SECONDS - 1
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to hear from the chain again")


def test_a_page_of_a_halted_ledger_says_so_at_its_top(chain: Chain, anvil: Anvil, database: Database) -> None:
    snapshot = anvil.rpc.call("evm_snapshot")
    anvil.rpc.call("anvil_mine", hex(2 * FINALITY_DEPTH))
    with TestClient(create_app(chain, database, Follower(chain, database, poll_seconds=0.02))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        anvil.rpc.call("evm_revert", snapshot)
        anvil.rpc.call("evm_increaseTime", hex(1_000))
        anvil.rpc.call("anvil_mine", hex(2 * FINALITY_DEPTH + 5))
        until(lambda: client.get("/health").json()["status"] == "failing", 20, "the ledger to halt")
        for path in ("/", "/rounds", "/nodes/77"):
            page = client.get(path, headers=HTML).text
            assert page.index("The ledger has halted at block") < page.index("<main"), path


def test_fifty_blocks_behind_every_page_says_so_and_a_partys_figures_come_from_the_chain(
    story: Story, synced: Database, chain: Chain, anvil: Anvil
) -> None:
    owner = story.honest.owner
    with TestClient(create_app(chain, synced, Follower(chain, synced, poll_seconds=1_000))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        current = client.get(f"/nodes/{story.honest.node}", headers=HTML).text
        story.market.send(owner, calls.approve(chain.deployment, "Registry", 7 * TOKEN))
        story.market.send(owner, calls.top_up(chain.deployment, story.honest.node, 7 * TOKEN))
        newcomer = story.market.register("newcomer", Role.WORKER, 2)
        anvil.rpc.call("anvil_mine", hex(50))
        head, bond = chain.head().number, chain.latest().node(story.honest.node).bond
        says = "blocks behind the chain"
        until(lambda: says in client.get("/", headers=HTML).text, 20, "the pages to have seen the head")
        for path in pages_of(story):
            page = client.get(path, headers=HTML).text
            assert page.index(says) < page.index("<main"), path
        own = client.get(f"/nodes/{story.honest.node}", headers=HTML).text
        purse = client.get(f"/credits/{owner.address}", headers=HTML).text
        unknown = client.get(f"/nodes/{newcomer.node}", headers=HTML)
        nobody = client.get("/nodes/999", headers=HTML).text
    assert "From the chain now" not in current
    for page in (own, purse):
        assert f"the contracts' own figures at block {head:,}" in page
        assert amount(bond) in page.partition("From the chain now")[2].partition("</section>")[0]
    assert unknown.status_code == 404
    assert "Jobs in flight" in unknown.text
    assert "The figures of today are not to be had" in nobody


def test_on_a_fork_that_is_not_followed_yet_every_page_says_so(
    story: Story, synced: Database, chain: Chain, anvil: Anvil
) -> None:
    snapshot = anvil.rpc.call("evm_snapshot")
    anvil.rpc.call("anvil_mine", hex(3))
    with TestClient(create_app(chain, synced, Follower(chain, synced, poll_seconds=1_000))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        anvil.rpc.call("evm_revert", snapshot)
        anvil.rpc.call("evm_increaseTime", hex(100))
        anvil.rpc.call("anvil_mine", hex(5))
        says = "The chain has another block at height"
        until(lambda: says in client.get("/", headers=HTML).text, 20, "the pages to have seen the fork")
        for path in pages_of(story):
            page = client.get(path, headers=HTML).text
            assert page.index(says) < page.index("<main"), path
        own = client.get(f"/nodes/{story.honest.node}", headers=HTML).text
    assert amount(chain.latest().node(story.honest.node).bond) in own.partition("From the chain now")[2]
