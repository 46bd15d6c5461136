"""Actions by a wallet in the browser: what it signs is what the form asks for, and anything else never reaches it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from ledger.api.actions import in_words
from protocol.chain.reading.contracts import Reader as ChainReader
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from tests.browser.conftest import Reader, served
from tests.browser.test_pages import looks_sound
from tests.conftest import TOKEN
from tests.ledger import disputes
from tests.ledger.disputes import Dispute
from tests.ledger.scenario import COLD, HOSTILE, RULES, Story

WALLET = """
(config) => {
  const asked = window.walletAsked = [];
  let chainId = config.chainId;
  const request = async ({ method, params = [] }) => {
    asked.push(method);
    if (method === config.refuses) throw Object.assign(new Error('User rejected the request.'), { code: 4001 });
    if (method in (config.answers ?? {})) return config.answers[method];
    if (method === 'eth_requestAccounts') return [config.account];
    if (method === 'eth_chainId') return chainId;
    if (method === 'wallet_switchEthereumChain') { chainId = params[0].chainId; return null; }
    return window.askChain(method, params);
  };
  const info = { uuid: '350670db-19fa-4704-a166-e52e178b59d2', name: config.name, icon: 'data:,', rdns: 'test.wallet' };
  const detail = Object.freeze({ info: Object.freeze(info), provider: Object.freeze({ request }) });
  const announce = () => window.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail }));
  window.addEventListener('eip6963:requestProvider', announce);
  announce();
}
"""
"""A provider without a key: the chain takes transactions of its account unsigned."""
STEPS = ("Sign step 1 of 3 in the wallet", "Sign step 1 of 2 in the wallet", "Sign in the wallet")
"""Buttons of an action that credits are bought for: an approval, the purchase, the action."""


@pytest.fixture(scope="module")
def dispute(told_once: Story) -> Dispute:
    """A run with a verdict that may be appealed, beside the story."""
    begun = disputes.begin(told_once.market)
    disputes.condemn(begun)
    return begun


@pytest.fixture(scope="module")
def acting(told_once: Story, dispute: Dispute, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of their ledger, which offers actions."""
    with served(told_once, tmp_path_factory.mktemp("acting"), "--actions") as url:
        yield url


class WalletUser:
    """A reader whose browser has a wallet with one account."""

    def __init__(self, reader: Reader, story: Story, account: str, **config: Any) -> None:
        self.reader, self.page, self.rpc = reader, reader.page, story.market.anvil.rpc
        self.rpc.call("anvil_impersonateAccount", account)
        story.market.anvil.fund(account)
        self.page.expose_function("askChain", lambda method, params: self.rpc.call(method, *params))
        given = {"account": account, "chainId": hex(story.market.chain.chain_id), "name": "Test wallet"} | config
        self.page.add_init_script(f"({WALLET})({json.dumps(given)})")

    def check(self, path: str, verb: str, **fields: str) -> None:
        """Opens a page, fills the form of an action in, and has it checked."""
        self.reader.open(path)
        for name, value in fields.items():
            self.form(verb).locator(f"[name={name}]").fill(value)
        self.form(verb).get_by_role("button", name="Check").click()

    def form(self, verb: str) -> Locator:
        return self.page.locator(f"form[data-verb={verb}]")

    def sign(self, verb: str, button: str = "Sign in the wallet") -> None:
        self.form(verb).get_by_role("button", name=button).click()

    def sees(self, verb: str, words: str) -> None:
        expect(self.form(verb).get_by_role("status")).to_contain_text(words)

    def has_not_sent(self, verb: str) -> bool:
        """True if the wallet was handed no transaction, and the page offers none."""
        offered = self.form(verb).get_by_role("button", name="Sign").count()
        return not offered and "eth_sendTransaction" not in self.page.evaluate("window.walletAsked")


@pytest.fixture
def user(acting: str, told_once: Story, reading: Callable[..., Reader]) -> Callable[..., WalletUser]:
    """Opens a tab whose wallet has an account."""
    return lambda account, **config: WalletUser(reading(acting), told_once, account, **config)


@pytest.fixture
def chain(told_once: Story) -> Callable[[], ChainReader]:
    """The newest state."""
    return told_once.market.chain.latest


def test_a_bond_is_topped_up_after_an_approval_of_the_exact_amount(
    user: Callable[..., WalletUser], dispute: Dispute, chain: Callable[[], ChainReader]
) -> None:
    market, worker = dispute.market, dispute.workers[0]
    market.send(worker.owner, calls.approve(market.deployment, "Registry", 0))
    before, owner = chain().node(worker.node).bond, user(worker.owner.address)
    owner.check(f"/nodes/{worker.node}", "top-up", amount="1.5")
    owner.sees("top-up", f"Token.approve: spender {market.deployment.registry.lower()}, value 1.5 ASZ")
    owner.sees("top-up", f"Registry.topUp: node {worker.node}, amount 1.5 ASZ")
    owner.sign("top-up", "Sign step 1 of 2 in the wallet")
    owner.sees("top-up", "The step before was mined in block")
    assert chain().allowance(worker.owner.address, market.deployment.registry) == 3 * TOKEN // 2
    owner.sign("top-up")
    owner.sees("top-up", "Done in block")
    assert chain().node(worker.node).bond == before + 3 * TOKEN // 2
    assert chain().allowance(worker.owner.address, market.deployment.registry) == 0
    owner.form("top-up").get_by_role("link", name="0x").click()
    expect(owner.page.get_by_role("heading", level=1)).to_contain_text("Transaction")
    assert not owner.reader.problems


def test_a_node_leaves_a_run_and_joins_it_again(
    user: Callable[..., WalletUser], told_once: Story, chain: Callable[[], ChainReader]
) -> None:
    owner, node = user(told_once.honest.owner.address), told_once.honest.node
    owner.reader.open("/runs/1")
    owner.form("leave").locator("[name=node]").focus()
    owner.page.keyboard.type(f"{node}\n")
    owner.sees("leave", "Simulated")
    for key in ("Tab", "Tab", "Tab", "Enter"):  # past the button and the bytes
        owner.page.keyboard.press(key)
    owner.sees("leave", "Done in block")
    expect(owner.form("leave").get_by_role("status")).to_be_focused()
    assert chain().joined_at(1, node) == bytes(32)
    owner.check("/runs/1", "join", node=str(node))
    owner.sees("join", f"rulesHash 0x{RULES.hex()}")
    owner.sign("join")
    owner.sees("join", "Done in block")
    assert chain().joined_at(1, node) == RULES


def test_credits_are_redeemed_to_the_address_typed_or_else_to_the_readers_own(
    user: Callable[..., WalletUser], told_once: Story, chain: Callable[[], ChainReader]
) -> None:
    requester = told_once.requester.address
    credits, cold, owner = chain().credits_of(requester), chain().balance_of(COLD), user(requester, name=HOSTILE)
    owner.check(f"/credits/{requester}", "redeem", amount="0.25", to=COLD)
    owner.sign("redeem")
    owner.sees("redeem", "Done in block")
    assert chain().credits_of(requester) == credits - TOKEN // 4
    assert chain().balance_of(COLD) == cold + TOKEN // 4
    held = chain().balance_of(requester)
    owner.check(f"/credits/{told_once.honest.owner.address}", "redeem", amount="0.25")
    owner.sign("redeem")
    owner.sees("redeem", "Done in block")
    assert chain().balance_of(requester) == held + TOKEN // 4, "a page of another owner names no receiver"
    assert "<script>alert(1)</script>" in owner.page.locator("#wallet option").inner_text()
    assert not owner.reader.problems


def test_a_run_is_funded_with_credits_that_are_bought_first(
    user: Callable[..., WalletUser], dispute: Dispute, chain: Callable[[], ChainReader]
) -> None:
    market, requester = dispute.market, dispute.requester
    market.send(requester, calls.approve(market.deployment, "Credits", 0))
    missing, before = TOKEN, chain().run(market.run).escrow
    amount = chain().credits_of(requester.address) + missing
    owner = user(requester.address)
    owner.check(f"/runs/{market.run}", "fund", amount=f"{amount // TOKEN}.{amount % TOKEN:018d}")
    for button in STEPS:
        owner.sign("fund", button)
    owner.sees("fund", "Done in block")
    assert chain().run(market.run).escrow == before + amount
    assert chain().allowance(requester.address, market.deployment.credits) == 0


def test_a_verdict_is_appealed_within_the_limit_that_the_reader_sets(
    user: Callable[..., WalletUser], dispute: Dispute, chain: Callable[[], ChainReader]
) -> None:
    worker, path = dispute.workers[1].owner, f"/why/jobs/{dispute.round}/6"
    dispute.market.send(worker, calls.redeem(dispute.market.deployment, worker.address, 10 * TOKEN))
    owner = user(worker.address)
    owner.check(path, "appeal")
    owner.sees("appeal", "of credits, and the form allows 0 ASZ")
    assert owner.has_not_sent("appeal")
    owner.check(path, "appeal", deposit="1")
    for button in STEPS:
        owner.sign("appeal", button)
    appeal = owner.page.locator("dt", has_text="Appeal").locator("+ dd")
    expect(appeal).to_be_visible()
    owner.sees("appeal", "Done in block")
    expect(appeal).to_have_text(str(chain().appeal_of(dispute.round, 6)))
    owner.reader.open(path)
    expect(owner.page.locator("#actions")).to_contain_text("Its verdict was appealed against, which can be done once.")
    assert not owner.reader.problems


def test_an_answer_other_than_the_form_never_reaches_the_wallet(
    user: Callable[..., WalletUser], dispute: Dispute
) -> None:
    market, worker, thief = dispute.market, dispute.workers[0], "0x" + "66" * 20
    deployment, node = market.deployment, worker.node
    market.send(worker.owner, calls.approve(deployment, "Registry", 0))
    owner = user(worker.owner.address)
    told: dict[str, Any] = {}

    def lie(route: Route) -> None:
        route.fulfill(json=told["lie"](route.fetch().json()))

    def own(call: Call) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda answer: answer | in_words(deployment, call).model_dump()

    def first(*given: Call) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda answer: answer | {"first": [in_words(deployment, call).model_dump() for call in given]}

    def words(answer: dict[str, Any]) -> dict[str, Any]:
        answer["decoded"]["arguments"]["amount"] = "0.000002 ASZ"
        return answer

    def dirty(data: str) -> str:
        return f"{data[:10]}1{data[11:]}"  # a node of more than 32 bits

    two, whole = 2 * TOKEN, calls.approve(deployment, "Registry", 2 * TOKEN)
    to_thief = calls.call(deployment, "Token", "approve", thief, two)
    lies = [
        ("calls Registry.retire, and Registry.topUp was asked for", own(calls.retire(deployment, node))),
        ("calls Token.transfer, and Registry.topUp", own(calls.transfer(deployment, thief, two))),
        ("has amount 3 ASZ, and 2 ASZ was asked for", own(calls.top_up(deployment, node, 3 * TOKEN))),
        (f"has node {node + 1}, and {node} was asked for", own(calls.top_up(deployment, node + 1, two))),
        (f"goes to {thief}, which is none of the contracts", lambda answer: answer | {"to": thief}),
        ("goes to undefined", lambda answer: {name: answer[name] for name in answer if name != "to"}),
        ("has amount 2 ASZ, and its words say 0.000002 ASZ", words),
        ("is not the encoding of any arguments", lambda answer: answer | {"data": answer["data"] + "00"}),
        ("is not the encoding of any arguments", lambda answer: answer | {"data": answer["data"][:20]}),
        ("is not the encoding of any arguments", lambda answer: answer | {"data": dirty(answer["data"])}),
        ("no function of Registry that this page knows", lambda answer: answer | {"data": "0x12345678"}),
        ("has value 3 ASZ, and 2 ASZ was asked for", first(calls.approve(deployment, "Registry", 3 * TOKEN))),
        (f"has spender {thief}, and", first(to_thief)),
        ("calls Registry.retire, and Token.approve was asked for", first(calls.retire(deployment, node))),
        ("has 2 calls before the one asked for", first(whole, whole)),
        ("is for chain 1, and this page for chain", lambda answer: answer | {"chain_id": 1}),
        ("is not an answer to this form", lambda answer: answer | {"first": None}),
    ]
    owner.page.route("**/actions/*", lie)
    owner.reader.open(f"/nodes/{node}")
    for sentence, told["lie"] in lies:
        owner.form("top-up").locator("[name=amount]").fill("2")
        owner.form("top-up").get_by_role("button", name="Check").click()
        owner.sees("top-up", "Not sent: ")
        owner.sees("top-up", sentence)
        assert owner.has_not_sent("top-up"), sentence
    told["lie"] = lambda answer: answer
    owner.form("top-up").get_by_role("button", name="Check").click()
    owner.sees("top-up", "Simulated, step 1: the chain would accept it")


def test_a_wallet_on_another_chain_is_asked_to_switch_first(user: Callable[..., WalletUser], told_once: Story) -> None:
    owner = user(told_once.honest.owner.address, chainId="0x1")
    owner.check(f"/nodes/{told_once.honest.node}", "retire")
    owner.sees("retire", "the wallet is on chain 1, and this page is of chain")
    assert owner.has_not_sent("retire")
    owner.form("retire").get_by_role("button", name="Switch the wallet to chain").click()
    owner.sees("retire", "Registry.retire: node")


@pytest.mark.parametrize("refused", ["eth_requestAccounts", "eth_sendTransaction"])
def test_what_is_refused_in_the_wallet_is_one_sentence(
    user: Callable[..., WalletUser], told_once: Story, chain: Callable[[], ChainReader], refused: str
) -> None:
    owner = user(told_once.honest.owner.address, refuses=refused)
    owner.check(f"/nodes/{told_once.honest.node}", "retire")
    if refused == "eth_sendTransaction":
        owner.sign("retire")
    owner.sees("retire", "Not sent: you refused it in the wallet.")
    assert not chain().node(told_once.honest.node).retired_at


def test_a_call_that_the_chain_would_refuse_is_not_offered_for_signing(
    user: Callable[..., WalletUser], told_once: Story
) -> None:
    stranger = user(told_once.requester.address)
    stranger.check(f"/nodes/{told_once.honest.node}", "retire")
    stranger.sees("retire", f"belongs to {told_once.honest.owner.address}")
    assert stranger.has_not_sent("retire")


def test_a_transaction_that_failed_is_called_so(user: Callable[..., WalletUser], told_once: Story) -> None:
    mined = {
        "eth_sendTransaction": "0x" + "ab" * 32,
        "eth_getTransactionReceipt": {"status": "0x0", "blockNumber": "0x7"},
    }
    owner = user(told_once.honest.owner.address, answers=mined)
    owner.check(f"/nodes/{told_once.honest.node}", "retire")
    owner.sign("retire")
    owner.sees("retire", "It failed in block 7: it changed nothing, and its gas is spent.")


def test_an_invalid_field_is_named_and_has_the_focus(user: Callable[..., WalletUser], told_once: Story) -> None:
    owner = user(told_once.requester.address)
    owner.check(f"/credits/{told_once.requester.address}", "redeem", amount="1.5e3")
    owner.sees("redeem", "invalid amount '1.5e3': expected tokens such as 48 or 1.5")
    expect(owner.form("redeem").locator("[name=amount]")).to_be_focused()
    expect(owner.form("redeem").locator("[name=amount]")).to_have_attribute("aria-invalid", "true")
    assert owner.page.evaluate("window.walletAsked") == []


def test_forms_are_sound_to_look_at(user: Callable[..., WalletUser], told_once: Story, dispute: Dispute) -> None:
    worker, requester = dispute.workers[0], told_once.requester.address
    owner = user(worker.owner.address)
    owner.check(f"/runs/{dispute.market.run}", "join", node=str(worker.node))
    owner.sees("join", "Simulated")
    looks_sound(owner.page, "acting: a call to sign", "#actions")
    owner.check(f"/credits/{requester}", "redeem", amount="a lot")
    owner.sees("redeem", "invalid amount")
    looks_sound(owner.page, "acting: an invalid amount", "#actions")
    assert not owner.reader.problems
