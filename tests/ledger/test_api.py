"""The read-only API: pages, stories, health, and clear refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ledger.api.app import create_app
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from tests.conftest import TOKEN, until
from tests.ledger.conftest import IN_BOTH, LISTS
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE, Market, Story


@pytest.fixture
def http(story: Story, chain: Chain, database: Database) -> Iterator[TestClient]:
    """The API over a database that it fills itself."""
    with TestClient(create_app(chain, database, Follower(chain, database, poll_seconds=0.02))) as client:
        until(lambda: client.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        yield client


def test_the_api_tells_what_happened(http: TestClient, story: Story, chain: Chain) -> None:
    health = http.get("/health").json()
    assert (health["status"], health["block_number"]) == ("following", chain.head().number)
    owner = story.honest.owner.address
    credit = http.get(f"/credits/{owner.lower()}").json()
    assert credit["credit"]["worked"] == str((2 * MAX_UNITS - 5) * PRICE)
    assert credit["nodes"][0]["key"] == story.honest.key.address
    kinds = [entry["kind"] for entry in http.get(f"/credits/{owner}/entries").json()["items"]]
    assert kinds == ["worked", "redeemed"]
    told = http.get(f"/rounds/{story.rounds[0]}").json()
    assert told["round"]["state"] == "settled"
    assert [seat["state"] for seat in told["seats"]].count("revealed") == 2
    assert {entry["amount"] for entry in told["payments"] if entry["kind"] == "judged"} == {str(FEE)}
    assert {slash["cause"] for slash in told["slashes"]} == {"fraud", "absence"}
    assert [part["version"] for part in told["consumptions"]] == [1, 3]
    assert http.get("/checkpoints/1/3").json()["consumptions"][0]["jobs"] == "0x2"
    assert [member["node"] for member in http.get("/runs/1").json()["members"]] == [1, 2, 3, 4, 5]
    audit = http.get("/audit").json()
    assert audit["audit"] == "ok"
    assert all(check["compared"] for check in audit["report"]["checks"])


def test_the_api_answers_for_jobs_credits_and_checkpoints(http: TestClient, story: Story) -> None:
    why = http.get(f"/why/jobs/{story.rounds[0]}/0").json()
    assert why["subject"].startswith(
        f"job 0 of round {story.rounds[0]}, assigned to node {story.honest.node}, is accepted"
    )
    assert [line["block_number"] for line in why["lines"]] == sorted(line["block_number"] for line in why["lines"])
    slash = http.get("/slashes").json()["items"][0]
    told = http.get(f"/why/entries/{slash['block_number']}/{slash['log_index']}").json()
    assert f"node {slash['node']}" in told["subject"]
    line = http.get("/lineage/1/3").json()
    assert [one["version"] for one in line["ancestors"]] == [3, 1, 0]
    validators = http.get("/validators").json()
    assert (len(validators["items"]), validators["block_number"]) == (3, line["at"]["block_number"])
    assert {one["node"] for one in http.get("/fairness").json()["items"]} == {story.honest.node, story.cheat.node}


def test_pages_follow_each_other_without_gap_or_repeat(http: TestClient) -> None:
    whole = http.get("/events", params={"limit": 500}).json()
    assert whole["next"] is None
    pieces, after = [], None
    while True:
        params = {"limit": 7} | ({"after": after} if after else {})
        part = http.get("/events", params=params).json()
        pieces += part["items"]
        after = part["next"]
        if after is None:
            break
    assert pieces == whole["items"]
    owners = http.get("/credits", params={"limit": 1}).json()
    rest = http.get("/credits", params={"after": owners["next"]}).json()
    assert owners["items"][0]["owner"] < rest["items"][0]["owner"]


def test_an_answer_that_has_not_changed_is_not_sent_again(http: TestClient, market: Market, chain: Chain) -> None:
    first = http.get("/credits")
    tag = first.headers["etag"]
    assert tag == f'"{first.json()["block_hash"]}"'
    for known in (tag, f'W/{tag}, "other"'):
        again = http.get("/credits", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "etag" not in http.get("/health").headers
    market.anvil.rpc.call("anvil_mine", "0x1")
    until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
    assert http.get("/credits", headers={"If-None-Match": tag}).status_code == 200


def test_an_answer_says_up_to_where_it_is_final(http: TestClient, chain: Chain) -> None:
    page, head = http.get("/rounds").json(), chain.head().number
    assert chain.deployment.start_block <= page["final_block"] < head
    assert head - page["final_block"] >= min(FINALITY_DEPTH, head - chain.deployment.start_block)


def everything(http: TestClient, **params: str) -> dict[str, Any]:
    """Every list, and some stories, without what is told of finality."""
    stories = ("treasury", "runs/1", "rounds/1", "checkpoints/1/3", "why/jobs/1/0", "lineage/1/3")
    told = {path: http.get(f"/{path}", params=params | {"limit": 500}) for path in (*LISTS, *stories)}
    assert {answer.status_code for answer in told.values()} == {200}
    bodies = {path: answer.json() for path, answer in told.items()}
    for body in bodies.values():
        body.pop("final_block", None)
        body.get("at", {}).pop("final_block", None)
    return bodies


@IN_BOTH
def test_the_ledger_answers_as_of_a_block_by_its_hash(http: TestClient, market: Market, story: Story) -> None:
    then = everything(http)
    block_hash = then["credits"]["block_hash"]
    market.send(market.rich("late", "Credits"), calls.buy(market.deployment, 5 * TOKEN))
    market.register("newcomer", Role.WORKER, capacity=4)
    market.send(story.requester, calls.close_run(market.deployment, market.run))
    until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
    now = everything(http)
    assert all(now[path]["items"] != then[path]["items"] for path in ("credits", "nodes", "runs", "events"))
    for _ in range(2):
        assert everything(http, as_of=block_hash) == then
    assert everything(http, as_of=now["credits"]["block_hash"]) == now
    assert everything(http) == now, "going back left nothing behind"
    assert "etag" not in http.get("/credits", params={"as_of": block_hash}).headers


def test_pages_as_of_a_block_are_of_one_list_while_the_chain_goes_on(http: TestClient, market: Market) -> None:
    whole = http.get("/events", params={"limit": 500}).json()
    pieces, params = [], {"limit": "9", "as_of": whole["block_hash"]}
    while True:
        part = http.get("/events", params=params).json()
        pieces += part["items"]
        if part["next"] is None:
            break
        params["after"] = part["next"]
        if len(pieces) < 30:
            market.rich(f"rich-{len(pieces)}", "Credits")
            until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
    assert pieces == whole["items"] != http.get("/events", params={"limit": 500}).json()["items"]


@IN_BOTH
def test_whoever_goes_back_and_whoever_follows_take_turns(http: TestClient, market: Market) -> None:
    then = http.get("/events", params={"limit": 500}).json()
    going_back = threading.Event()

    def again() -> list[int]:
        asked = {"limit": "500", "as_of": then["block_hash"]}
        answers = []
        while not going_back.is_set():
            answers.append(http.get("/events", params=asked))
        assert all(answer.json()["items"] == then["items"] for answer in answers)
        return [answer.status_code for answer in answers]

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(again) for _ in range(4)]
        try:
            for number in range(5):
                market.rich(f"rich-{number}", "Credits")
            until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        finally:
            going_back.set()
        assert {code for reader in readers for code in reader.result()} == {200}
    assert len(http.get("/events", params={"limit": 500}).json()["items"]) > len(then["items"])


def test_a_block_that_cannot_be_answered_for_is_told_apart_by_why(http: TestClient, market: Market) -> None:
    undone = http.get("/credits").json()["block_hash"]
    market.anvil.rpc.call("anvil_reorg", 2, [])
    until(lambda: http.get("/credits").json()["block_hash"] != undone, 20, "the ledger to go back")
    for wrong, code, why in (
        (undone, 404, "may have undone it"),
        ("0x" + "ab" * 32, 404, "may have undone it"),
        ("0x" + market.deployment.start_hash.hex(), 410, "older than"),
        ("0xab", 422, "as_of"),
    ):
        if code == 410:
            market.anvil.rpc.call("anvil_mine", hex(FINALITY_DEPTH + 8))
            until(lambda: http.get("/health").json()["behind"] == 0, 20, "the ledger to be at the head")
        answer = http.get("/rounds", params={"as_of": wrong})
        assert (answer.status_code, set(answer.json())) == (code, {"error"})
        assert why in answer.json()["error"]


def test_a_block_of_a_fork_that_the_ledger_has_not_followed_yet_may_be_asked_for_again(
    market: Market, chain: Chain, database: Database
) -> None:
    snapshot = market.anvil.rpc.call("evm_snapshot")
    market.anvil.rpc.call("anvil_mine", "0x3")
    stands = sync(chain, database)
    market.anvil.rpc.call("evm_revert", snapshot)
    http = TestClient(create_app(chain, database, Follower(chain, database)))
    for _ in range(3):  # of a shorter chain, and of one as long
        market.pass_time(100)
        answer = http.get("/rounds", params={"as_of": "0x" + chain.head().hash.hex()})
        assert (answer.status_code, set(answer.json())) == (503, {"error"}), answer.json()
        assert "has not followed the reorganisation yet" in answer.json()["error"]
    assert chain.head().number == stands.number


def test_lists_can_be_narrowed(http: TestClient, story: Story) -> None:
    tallied = http.get("/events", params={"name": "RoundTallied"}).json()["items"]
    assert [event["payload"]["accepted"] for event in tallied] == ["3"]
    fraud = http.get("/slashes", params={"node": story.cheat.node}).json()["items"]
    assert [slash["cause"] for slash in fraud] == ["fraud"]
    assert http.get("/rounds", params={"run": 2}).json()["items"] == []
    told = http.get("/events", params={"round": story.rounds[1], "limit": 500}).json()["items"]
    assert {event["payload"]["round"] for event in told} == {str(story.rounds[1])}
    assert [event["name"] for event in told][-1] == "JobsFreed"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/rounds/77", 404),
        ("/why/jobs/77/0", 404),
        ("/why/entries/77777/9", 404),
        ("/lineage/1/2", 404),
        ("/rounds/-1", 422),
        ("/rounds/99999999999999999999", 422),
        ("/runs/9", 404),
        ("/checkpoints/1/9", 404),
        ("/credits/0x00000000000000000000000000000000000000aa", 404),
        ("/credits/alice", 422),
        ("/rounds?after=%00", 400),
        ("/rounds?after=WyJhIl0", 400),
        ("/credits?after=WyJcdWQ4MDAiXQ", 400),
        ("/credits?after=WyJcdTAwMDAiXQ", 400),
        ("/events?name=%00", 422),
        ("/rounds?limit=0", 422),
        ("/nowhere", 404),
    ],
)
def test_a_wrong_request_is_one_sentence(chain: Chain, database: Database, path: str, code: int) -> None:
    with TestClient(create_app(chain, database, Follower(chain, database))) as client:
        answer = client.get(path)
    assert answer.status_code == code
    assert set(answer.json()) == {"error"}


def test_the_root_lists_the_paths_and_no_page_loads_scripts_from_elsewhere(chain: Chain, database: Database) -> None:
    with TestClient(create_app(chain, database, Follower(chain, database))) as client:
        told = client.get("/").json()
        assert told["service"] == "Assize ledger"
        assert {"/health", "/rounds/{round}", "/openapi.json"} <= set(told["paths"])
        assert {client.get(path).status_code for path in ("/docs", "/redoc")} == {404}


def test_the_power_of_the_tests_on_rewards_is_told(chain: Chain, database: Database) -> None:
    with TestClient(create_app(chain, database, Follower(chain, database))) as client:
        power = client.get("/detection").json()["power"]
    found = {(row["uplift"], row["share"]): row["condemned_jobs"] for row in power}
    assert {share for _, share in found} == {0.1, 0.33, 0.6, 1.0}
    assert all(found[0.2, share] < found[0.1, share] < found[0.05, share] for _, share in found)


def test_openapi_writes_wide_numbers_as_strings(chain: Chain, database: Database) -> None:
    schema = create_app(chain, database, Follower(chain, database)).openapi()
    assert set(schema["paths"]) >= {"/health", "/credits", "/rounds/{round}", "/nodes", "/runs", "/audit", "/events"}
    assert schema["components"]["schemas"]["Credit"]["properties"]["balance"]["type"] == "string"
    assert {method for path in schema["paths"].values() for method in path} == {"get"}
