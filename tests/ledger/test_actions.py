"""Actions for a reader's own wallet: each verb's calls, simulated for its sender and never sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ledger.api.actions import MOST_BODY_BYTES, READ_ONLY, VERBS
from ledger.api.app import create_app
from ledger.facts import RunTerms
from ledger.queries.lookup import every, terms_at
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.index import sync
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from tests.conftest import TOKEN
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import COLD, RULES, Story

HTML = {"Accept": "text/html"}
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def dispute(told_once: Story) -> Dispute:
    """A run with a verdict that may be appealed, beside the story."""
    begun = disputes.begin(told_once.market)
    disputes.condemn(begun)
    for number in range(10):  # as many as the run's page lists, none of them in effect yet
        terms = disputes.renewed(begun.terms, bytes([0x40 + number]) * 32)
        begun.market.send(begun.requester, calls.announce(begun.market.deployment, begun.market.run, terms))
    return begun


@pytest.fixture(scope="module")
def database(told_once: Story, dispute: Dispute, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    chain = told_once.market.chain
    with closing(Database(tmp_path_factory.mktemp("actions") / "ledger.sqlite", chain.deployment)) as opened:
        sync(chain, opened)
        yield opened


def client_of(database: Database, story: Story, actions: bool) -> TestClient:
    chain = story.market.chain
    return TestClient(create_app(chain, database, Follower(chain, database), actions=actions))


@pytest.fixture(scope="module")
def acting(database: Database, told_once: Story) -> TestClient:
    return client_of(database, told_once, actions=True)


@pytest.fixture(scope="module")
def read_only(database: Database, told_once: Story) -> TestClient:
    return client_of(database, told_once, actions=False)


@pytest.fixture
def ask(acting: TestClient) -> Ask:
    """Asks for an action, which is answered with ``code``."""

    def asked(verb: str, sender: str, code: int = 200, **fields: Any) -> Any:
        answer = acting.post(f"/actions/{verb}", json={"sender": sender, **fields})
        assert answer.status_code == code, answer.text
        return answer.json() if code == 200 else answer.json()["error"]

    return asked


def is_call(answer: dict[str, Any], call: Call) -> bool:
    return (answer["to"], answer["data"]) == (call.to, "0x" + call.data.hex())


def test_a_top_up_comes_with_an_approval_of_exactly_its_amount(ask: Ask, told_once: Story) -> None:
    market, honest = told_once.market, told_once.honest
    market.send(honest.owner, calls.approve(market.deployment, "Registry", TOKEN))
    within = ask("top-up", honest.owner.address, node=honest.node, amount_wei=str(TOKEN))
    assert is_call(within, calls.top_up(market.deployment, honest.node, TOKEN))
    assert within["decoded"]["arguments"] == {"node": str(honest.node), "amount": "1 ASZ"}
    assert within["chain_id"] == market.chain.chain_id
    assert not within["first"]
    above = ask("top-up", honest.owner.address.lower(), node=honest.node, amount_wei=str(TOKEN + 1))
    (approval,) = above["first"]
    assert is_call(approval, calls.approve(market.deployment, "Registry", TOKEN + 1))
    assert approval["decoded"]["contract"] == "Token"
    assert approval["decoded"]["arguments"]["value"] == "1.000000000000000001 ASZ"
    assert above["simulated"]["ok"]


def test_each_verb_is_the_call_of_the_command(ask: Ask, told_once: Story, dispute: Dispute) -> None:
    market, honest, worker = told_once.market, told_once.honest, dispute.workers[0]
    deployment, owner, rules = market.deployment, honest.owner.address, "0x" + RULES.hex()
    answers = [
        (ask("retire", owner, node=honest.node), calls.retire(deployment, honest.node)),
        (ask("leave", owner, node=honest.node, run=1), calls.leave(deployment, 1, honest.node)),
        (ask("join", owner, node=honest.node, run=1, rules_hash=rules), calls.join(deployment, 1, honest.node, RULES)),
        (
            ask("redeem", told_once.requester.address, amount_wei="5", to=COLD),
            calls.redeem(deployment, COLD, 5),
        ),
        (
            ask("fund", dispute.requester.address, run=market.run, amount_wei="7"),
            calls.fund_run(deployment, market.run, 7),
        ),
        (
            ask("appeal", worker.owner.address, round=dispute.round, job=2),
            calls.appeal(deployment, dispute.round, 2, 0, dispute.batches[0]),
        ),
    ]
    for answer, call in answers:
        assert is_call(answer, call)
        assert answer["simulated"]["ok"], answer
        assert not answer["first"]


def test_a_retired_node_is_withdrawn_once_its_time_has_come(ask: Ask, told_once: Story) -> None:
    market, cheat = told_once.market, told_once.cheat
    snapshot = market.anvil.rpc.call("evm_snapshot")
    early = ask("withdraw", cheat.owner.address, node=cheat.node)
    assert not early["simulated"]["ok"]
    assert "has not retired" in early["simulated"]["says"]
    market.anvil.rpc.call("anvil_impersonateAccount", cheat.owner.address)
    retire = calls.retire(market.deployment, cheat.node)
    sent = {"from": cheat.owner.address, "to": retire.to, "data": "0x" + retire.data.hex()}
    market.anvil.rpc.call("eth_sendTransactionSync", sent)
    assert "can be withdrawn from" in ask("withdraw", cheat.owner.address, node=cheat.node)["simulated"]["says"]
    market.pass_time(2 * 86_400 + 1)
    assert ask("withdraw", cheat.owner.address, node=cheat.node)["simulated"]["ok"]
    market.anvil.rpc.call("evm_revert", snapshot)


def test_the_simulation_says_who_has_to_sign(ask: Ask, told_once: Story) -> None:
    stranger, honest = told_once.requester.address, told_once.honest
    for verb, more in (("retire", {}), ("leave", {"run": 1}), ("join", {"run": 1, "rules_hash": "0x" + RULES.hex()})):
        simulated = ask(verb, stranger, node=honest.node, **more)["simulated"]
        assert not simulated["ok"]
        assert honest.owner.address in simulated["says"]


@pytest.mark.parametrize(
    ("verb", "fields", "code", "words"),
    [
        ("top-up", {"node": 1, "amount_wei": "0"}, 422, "amount_wei: "),
        ("top-up", {"node": 1, "amount_wei": "-1"}, 422, "amount_wei: "),
        ("top-up", {"node": 1, "amount_wei": "9" * 39}, 422, "amount_wei: "),
        ("top-up", {"node": 1, "amount_wei": 5}, 422, "amount_wei: "),
        ("top-up", {"node": 1}, 422, "amount_wei: "),
        ("top-up", {"node": 1, "amount_wei": "9" * 30}, 400, "too few tokens"),
        ("retire", {"node": 2**40}, 400, "out of range"),
        ("retire", {"node": 1, "value": "1"}, 422, "value: "),
        ("redeem", {"amount_wei": "5", "to": "0x12"}, 422, "to: "),
        ("redeem", {"amount_wei": "9" * 30, "to": COLD}, 400, "too few credits"),
        ("fund", {"run": 1, "amount_wei": "5"}, 400, "belongs to"),
        ("join", {"run": 1, "node": 1, "rules_hash": "0x" + "99" * 32}, 400, "read them before joining"),
        ("appeal", {"round": 1, "job": 0}, 400, "the time to appeal"),
        ("appeal", {"round": 1, "job": 256}, 422, "job: "),
        ("appeal", {"round": 10**6, "job": 0}, 400, "there is no round"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_sentence(
    ask: Ask, told_once: Story, verb: str, fields: dict[str, Any], code: int, words: str
) -> None:
    assert words in ask(verb, told_once.cheat.owner.address, code, **fields)


def test_a_body_that_is_no_request_is_refused(acting: TestClient) -> None:
    for body, code in (
        (b"", 422),
        (b"[]", 422),
        (b"\xff\xfe{", 422),
        (b"[" * 3000, 422),
        (b" " * (MOST_BODY_BYTES + 1), 413),
    ):
        answer = acting.post("/actions/retire", content=body)
        assert (answer.status_code, bool(answer.json()["error"])) == (code, True), body[:20]
    unknown = acting.post("/actions/steal", json={})
    assert (unknown.status_code, unknown.json()["error"]) == (
        404,
        f"invalid action: expected one of {', '.join(VERBS)}",
    )


def test_another_sites_page_is_refused(acting: TestClient, told_once: Story) -> None:
    asked = {"sender": told_once.honest.owner.address, "node": 1}
    for site, code in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        assert acting.post("/actions/retire", json=asked, headers={"Sec-Fetch-Site": site}).status_code == code


def test_without_actions_nothing_is_offered(read_only: TestClient, told_once: Story, dispute: Dispute) -> None:
    for verb in VERBS:
        answer = read_only.post(f"/actions/{verb}", json={"sender": COLD, "node": 1})
        assert (answer.status_code, answer.json()["error"]) == (404, READ_ONLY)
    assert "/actions/retire" not in read_only.get("/openapi.json").json()["paths"]
    for path in pages_with_actions(told_once, dispute):
        page = read_only.get(path, headers=HTML).text
        assert "data-verb" not in page
        assert "wallet" not in page


def test_with_actions_pages_offer_forms_and_name_the_command(
    acting: TestClient, told_once: Story, dispute: Dispute
) -> None:
    hashed = acting.get("/rounds?limit=1").json()["block_hash"]
    for path, verbs in pages_with_actions(told_once, dispute).items():
        page = acting.get(path, headers=HTML).text
        for verb, command in verbs.items():
            assert f'data-verb="{verb}" aria-labelledby="{verb}" hidden' in page
            assert f"<code>{command}" in page
        assert page.count("data-verb") == len(verbs)
        assert "data-verb" not in acting.get(f"{path}?as_of={hashed}", headers=HTML).text


def test_a_run_is_joined_at_the_rules_in_effect_however_many_are_announced(
    acting: TestClient, database: Database, dispute: Dispute
) -> None:
    run, joining = dispute.market.run, f"assize run join {dispute.market.run} NODE --rules-hash 0x"
    page = acting.get(f"/runs/{run}", headers=HTML)
    assert page.status_code == 200
    assert f"<code>{joining}{dispute.terms.rules_hash.hex()}</code>" in page.text
    with database.reading() as connection:
        *_, last = every(connection, RunTerms, run=run)
        assert terms_at(connection, run, last.effective_at) == last
        assert terms_at(connection, run, last.effective_at - 1).rules_hash == dispute.terms.rules_hash
        assert terms_at(connection, run, 0).number == 0


def pages_with_actions(story: Story, dispute: Dispute) -> dict[str, dict[str, str]]:
    """Pages, and the command that does the same as each of their actions."""
    owner, run, node, round_ = story.honest.owner.address, dispute.market.run, story.honest.node, dispute.round
    on_run = {"fund": f"assize run fund {run} AMOUNT", "join": f"assize run join {run} NODE --rules-hash 0x"}
    return {
        f"/nodes/{node}": {"top-up": f"assize stake deposit {node} AMOUNT", "retire": f"assize node retire {node}"},
        f"/credits/{owner}": {"redeem": "assize credits redeem AMOUNT"},
        f"/runs/{run}": on_run | {"leave": f"assize run leave {run} NODE"},
        f"/why/jobs/{round_}/2": {"appeal": f"assize appeal open {round_} 2"},
    }
