"""Every event once, in order, across ranges, restarts and reorganisations."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from protocol.chain.events import Dripped, Log, Transfer
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.chain.reading.tail import UNCLEAR_POLLS, BlockEvents, FinalityMoved, Rollback, Tail
from protocol.chain.rpc import Rpc
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Unavailable
from protocol.node.wallet import Wallet
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import Anvil, chain_fixtures, until
from tests.evms.chain import Grudge, too_wide

anvil_process, deployment = chain_fixtures("module")


class Faucet:
    """Makes events: the amounts dripped tell them apart."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.dripped = 0

    def drip(self, times: int = 1) -> None:
        deployment = self.sender.chain.deployment
        for _ in range(times):
            self.dripped += 1
            call = calls.drip(deployment, self.sender.address, self.dripped)
            self.sender.send(f"drip-{self.dripped}", call)


@pytest.fixture
def faucet(chain: Chain, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Faucet]:
    sender = Sender(chain, make_wallet("faucet"), tmp_path / "faucet.sqlite")
    yield Faucet(sender)
    sender.close()


def events_of(found: list[BlockEvents] | Rollback) -> list[Log]:
    assert isinstance(found, list)
    return [log for block in found for log in block.logs]


def amounts(logs: list[Log]) -> list[int]:
    return [log.event.amount for log in logs if isinstance(log.event, Dripped)]


@contextmanager
def final_after(chain: Chain, depth: int | None) -> Iterator[Chain]:
    """The same deployment where blocks are final so soon; by the node's tag where that is None."""
    with closing(Chain(chain.rpc.url, replace(chain.deployment, finality_depth=depth))) as other:
        yield other


def drain(tail: Tail, max_blocks: int = 20_000) -> list[Log]:
    logs: list[Log] = []
    while found := tail.poll(max_blocks):
        logs += events_of(found)
    return logs


@pytest.mark.parametrize("finality_depth", [64, 0, 3], ids=["live", "backfill", "both, with a joint"])
@pytest.mark.parametrize("max_blocks", [1, 4, 20_000])
def test_every_event_comes_once_in_order(chain: Chain, faucet: Faucet, finality_depth: int, max_blocks: int) -> None:
    faucet.drip(9)
    with final_after(chain, finality_depth) as other:
        logs = drain(Tail(other), max_blocks)
    assert amounts(logs) == list(range(1, 10))
    assert [log.log_index for log in logs[-2:]] == [0, 1]
    assert isinstance(logs[-1].event, Transfer)
    block = chain.block(logs[-1].block_number)
    assert (logs[-1].block_hash, logs[-1].timestamp) == (block.hash, block.timestamp)


def test_live_events_come_at_the_next_poll(chain: Chain, faucet: Faucet) -> None:
    tail = Tail(chain)
    drain(tail)
    for expected in (1, 2, 3):
        faucet.drip()
        found = tail.poll()
        assert amounts(events_of(found)) == [expected]
        assert tail.poll() == []


def test_the_last_block_looked_at_is_always_there_even_without_events(chain: Chain, anvil: Anvil) -> None:
    tail = Tail(chain)
    drain(tail)
    anvil.rpc.call("anvil_mine", hex(5))
    (found,) = tail.poll()
    assert (found.block.number, found.logs) == (chain.head().number, ())
    assert (tail.cursor.number, tail.cursor.hash) == (found.block.number, found.block.hash)


def test_a_stored_cursor_goes_on_where_it_stopped(chain: Chain, faucet: Faucet) -> None:
    faucet.drip(3)
    first = Tail(chain)
    drain(first)
    stored = first.cursor.to_json()
    faucet.drip(2)
    assert Cursor.from_json(stored) == first.cursor
    assert amounts(drain(Tail(chain, Cursor.from_json(stored)))) == [4, 5]


def test_what_was_not_committed_comes_again(chain: Chain, faucet: Faucet) -> None:
    tail = Tail(chain)
    drain(tail)
    stored = tail.cursor
    faucet.drip(2)
    assert amounts(events_of(tail.poll())) == [1, 2]
    assert amounts(events_of(tail.poll(cursor=stored))) == [1, 2]


def test_confirmations_hold_events_back(chain: Chain, faucet: Faucet, anvil: Anvil) -> None:
    tail = Tail(chain, confirmations=2)
    drain(tail)
    faucet.drip()
    assert amounts(drain(tail)) == []
    anvil.rpc.call("anvil_mine", hex(2))
    assert amounts(drain(tail)) == [1]


@pytest.mark.parametrize("depth", [1, 5, 30])
@pytest.mark.parametrize("restart", [False, True])
def test_a_reorganisation_rolls_back_to_the_common_ancestor(
    chain: Chain, faucet: Faucet, anvil: Anvil, depth: int, restart: bool
) -> None:
    tail = Tail(chain)
    faucet.drip(31)
    drain(tail)
    before = chain.head()
    anvil.rpc.call("anvil_reorg", depth, [])
    anvil.rpc.call("anvil_mine", hex(1))
    if restart:
        tail = Tail(chain, Cursor.from_json(tail.cursor.to_json()))
    back = tail.poll()
    assert isinstance(back, Rollback)
    assert back.to_block == before.number - depth == back.cursor.number
    assert back.cursor.hash == chain.block(back.to_block).hash
    faucet.sender.reconcile()
    until(lambda: anvil.mined_from(faucet.sender.address) == 31, 10, "anvil to mine what it took")
    replayed = amounts(drain(tail))
    assert sorted(replayed) == list(range(32 - depth, 32))


def test_a_shorter_chain_that_replaced_ours_rolls_back(chain: Chain, faucet: Faucet, anvil: Anvil) -> None:
    tail = Tail(chain)
    faucet.drip(4)
    drain(tail)
    before = chain.head().number
    anvil.rpc.call("anvil_rollback", 3)
    assert tail.poll() == []
    anvil.rpc.call("evm_increaseTime", 7)
    anvil.rpc.call("anvil_mine", hex(1))
    back = tail.poll()
    assert isinstance(back, Rollback)
    assert back.to_block == before - 3


def test_a_reorganisation_past_finality_halts(chain: Chain, faucet: Faucet, anvil: Anvil) -> None:
    with final_after(chain, 2) as other:
        tail = Tail(other)
        faucet.drip(8)
        drain(tail)
        anvil.rpc.call("anvil_reorg", 6, [])
        anvil.rpc.call("anvil_mine", hex(1))
        with pytest.raises(FinalityMoved, match="which was final"):
            tail.poll()


def test_finality_by_the_nodes_own_tag_reads_the_same(chain: Chain, faucet: Faucet, anvil: Anvil) -> None:
    faucet.drip(3)
    anvil.rpc.call("anvil_mine", hex(70))
    faucet.drip(3)
    with final_after(chain, None) as other:
        head, final = other.head_and_final()
        assert 0 < final < head.number
        assert amounts(drain(Tail(other))) == list(range(1, 7))


def test_an_idle_poll_costs_one_request(chain: Chain) -> None:
    tail = Tail(chain)
    drain(tail)
    before = chain.rpc.round_trips
    assert tail.poll() == []
    assert chain.rpc.round_trips - before == 1


def test_an_rpc_that_is_gone_loses_nothing(chain: Chain, faucet: Faucet) -> None:
    rpc = Rpc(chain.rpc.url)
    tail = Tail(Chain([rpc], chain.deployment))
    drain(tail)
    faucet.drip(2)
    url, rpc.url = rpc.url, "http://127.0.0.1:1"
    with pytest.raises(Unavailable, match="no RPC answers"):
        tail.poll()
    rpc.url = url
    assert amounts(drain(tail)) == [1, 2]
    rpc.close()


def test_another_endpoint_steps_in_for_one_that_is_gone(chain: Chain, faucet: Faucet) -> None:
    endpoints = [Rpc(chain.rpc.url) for _ in range(3)]
    tail = Tail(Chain(endpoints, chain.deployment))
    faucet.drip(1)
    assert amounts(drain(tail)) == [1]
    endpoints[0].url = "http://127.0.0.1:1"
    faucet.drip(2)
    assert amounts(drain(tail)) == [2, 3]
    for rpc in endpoints:
        rpc.close()


class CutsShort(httpx.HTTPTransport):
    """An endpoint that leaves out the last log of whatever it is asked."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(super().handle_request(request).read())
        answers = body if isinstance(body, list) else [body]
        for answer in answers:
            if isinstance(answer.get("result"), list):
                answer["result"] = answer["result"][:-1]
        return httpx.Response(200, json=body)


@pytest.mark.parametrize("finality_depth", [64, 0], ids=["live", "backfill"])
def test_endpoints_that_tell_different_events_of_a_block_stop_the_reading(
    chain: Chain, faucet: Faucet, finality_depth: int
) -> None:
    faucet.drip(2)
    honest, liar = Rpc(chain.rpc.url), Rpc(chain.rpc.url, transport=CutsShort())
    deployment = replace(chain.deployment, finality_depth=finality_depth)
    for order in ([honest, liar], [liar, honest]):
        with pytest.raises(Unavailable, match="RPC endpoints disagree"):
            Tail(Chain(order, deployment)).poll()
    honest.close()
    liar.close()


class Lags(httpx.HTTPTransport):
    """An endpoint that does not know blocks above ``newest`` by their hash."""

    newest = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked, body = json.loads(request.read()), json.loads(super().handle_request(request).read())
        for one, answer in zip(asked, body, strict=True) if isinstance(asked, list) else ():
            logs = answer["result"] if one["method"] == "eth_getLogs" else []
            if any(int(log["blockNumber"], 16) > self.newest for log in logs):
                answer["error"], answer["result"] = {"code": -32000, "message": "unknown block"}, None
        return httpx.Response(200, json=body)


def test_what_no_second_endpoint_knows_yet_waits_until_one_does(chain: Chain, faucet: Faucet) -> None:
    faucet.drip(2)
    lagging = Lags()
    lagging.newest = chain.head().number - 1
    first, second, third = Rpc(chain.rpc.url), Rpc(chain.rpc.url, transport=lagging), Rpc(chain.rpc.url)
    with pytest.raises(Unavailable, match="no second RPC endpoint confirms"):
        drain(Tail(Chain([first, second], chain.deployment)))
    assert amounts(drain(Tail(Chain([first, second, third], chain.deployment)))) == [1, 2]
    lagging.newest += 1
    assert amounts(drain(Tail(Chain([first, second], chain.deployment)))) == [1, 2]
    for rpc in (first, second, third):
        rpc.close()


class CatchesUp(httpx.HTTPTransport):
    """An endpoint that imports a block while it answers each request of a batch, and tells what it has by then."""

    newest = 1 << 62

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked, body = json.loads(request.read()), json.loads(super().handle_request(request).read())
        for one, answer in zip(asked, body, strict=True) if isinstance(asked, list) else ():
            if one["method"] == "eth_getLogs":
                answer["result"] = [log for log in answer["result"] if int(log["blockNumber"], 16) <= self.newest]
            elif one["method"] == "eth_getBlockByNumber" and int(one["params"][0], 16) > self.newest:
                answer["result"] = None
            self.newest += 1
        return httpx.Response(200, json=body)


def test_an_endpoint_that_catches_up_between_two_answers_loses_no_event(chain: Chain, faucet: Faucet) -> None:
    transport = CatchesUp()
    behind = Rpc(chain.rpc.url, transport=transport)
    with closing(Chain([behind], replace(chain.deployment, finality_depth=0))) as other:
        tail = Tail(other)
        drain(tail)
        faucet.drip(4)
        transport.newest = chain.head().number - 2
        found: list[int] = []
        for _ in range(8):
            found += amounts(events_of(tail.poll()))
    assert found == [1, 2, 3, 4]


@pytest.mark.parametrize("finality_depth", [64, 0], ids=["live", "backfill"])
def test_an_endpoint_that_goes_on_lacking_blocks_is_named(chain: Chain, faucet: Faucet, finality_depth: int) -> None:
    lacking = set[int]()

    class Lacks(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            body = json.loads(super().handle_request(request).read())
            for answer in body if isinstance(body, list) else [body]:
                if isinstance(answer["result"], dict) and int(answer["result"].get("number", "0x0"), 16) in lacking:
                    answer["result"] = None
            return httpx.Response(200, json=body)

    lossy = Rpc(chain.rpc.url, transport=Lacks())
    with closing(Chain([lossy], replace(chain.deployment, finality_depth=finality_depth))) as other:
        tail = Tail(other)
        drain(tail)
        read = tail.cursor.number
        lacking.add(read + 1)
        faucet.drip(3)
        assert [tail.poll() for _ in range(UNCLEAR_POLLS - 1)] == [[]] * (UNCLEAR_POLLS - 1), "it may be catching up"
        for _ in range(2):
            with pytest.raises(Unavailable, match=rf"but not all blocks between it and block {read};"):
                tail.poll()
        lacking.clear()
        assert amounts(drain(tail)) == [1, 2, 3]


def test_a_second_opinion_is_not_asked_of_whoever_gave_the_first(chain: Chain) -> None:
    first, second = Rpc(chain.rpc.url), Rpc(chain.rpc.url)
    with closing(Chain([first, second], chain.deployment)) as both:
        both.head()
        first.url = "http://127.0.0.1:1"
        another = threading.Thread(target=both.head)
        another.start()
        another.join()
        assert both.rpc.url == second.url
        assert both.witnesses == (second,)


def test_an_endpoint_that_has_not_read_up_to_the_contracts_is_passed_over_and_ends_nobody(chain: Chain) -> None:
    class Young(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            body = json.loads(super().handle_request(request).read())
            answers = body if isinstance(body, list) else [body]
            for one, answer in zip(json.loads(request.read()), answers, strict=False):
                if isinstance(one, dict) and one["method"] == "eth_getCode":
                    answer["result"] = "0x"
            return httpx.Response(200, json=body)

    first, young = Rpc(chain.rpc.url), Rpc(chain.rpc.url, transport=Young())
    with closing(Chain([first, young], chain.deployment)) as both:
        first.url = "http://127.0.0.1:1"
        with pytest.raises(Unavailable, match=r"cannot use the RPC at .*: no contract at"):
            both.head()
        first.url = chain.rpc.url
        assert both.head().number >= chain.deployment.start_block


def test_a_final_block_that_an_endpoint_does_not_know_is_no_reason_to_halt(
    chain: Chain, faucet: Faucet, anvil: Anvil
) -> None:
    forgotten = -1

    class Forgets(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            asked, body = json.loads(request.read()), json.loads(super().handle_request(request).read())
            listed = zip(asked, body, strict=True) if isinstance(asked, list) else [(asked, body)]
            for one, answer in listed:
                number = one["params"][0] if one["method"] == "eth_getBlockByNumber" else "latest"
                if number != "latest" and int(number, 16) <= forgotten:
                    answer["result"] = None
            return httpx.Response(200, json=body)

    faucet.drip(8)
    with closing(Rpc(chain.rpc.url, transport=Forgets())) as rpc:
        tail = Tail(Chain([rpc], replace(chain.deployment, finality_depth=2)))
        drain(tail)
        forgotten = chain.head().number - 1
        anvil.rpc.call("anvil_reorg", 1, [])
        anvil.rpc.call("anvil_mine", hex(1))
        with pytest.raises(Unavailable, match="does not know block"):
            tail.poll()
        forgotten = -1
        assert isinstance(tail.poll(), Rollback)


def test_what_is_not_json_rpc_is_said_to_be_so(chain: Chain, faucet: Faucet) -> None:
    class Nonsense(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if b"eth_getLogs" not in request.read():
                return super().handle_request(request)
            asked = json.loads(request.content)
            return httpx.Response(200, json=[{"id": one["id"], "result": [{"address": 7}]} for one in asked])

    faucet.drip(1)
    rpc = Rpc(chain.rpc.url, transport=Nonsense())
    with pytest.raises(Unavailable, match="invalid answer from the RPC at"):
        drain(Tail(Chain([rpc], chain.deployment)))
    rpc.close()


# Last, since a deep reorganisation needs states that anvil drops after some hundred blocks.
def test_a_hundred_blocks_a_second_are_caught_up_with_in_few_requests(chain: Chain, anvil: Anvil) -> None:
    tail = Tail(chain)
    drain(tail)
    anvil.rpc.call("anvil_mine", hex(60))
    before = chain.rpc.round_trips
    drain(tail)
    assert chain.rpc.round_trips - before <= 4
    anvil.rpc.call("anvil_mine", hex(500))
    before = chain.rpc.round_trips
    drain(tail)
    assert chain.rpc.round_trips - before < 20


@pytest.mark.parametrize("max_blocks", [30, 20_000])
def test_ranges_fetched_ahead_hold_every_event_once_also_where_the_rpc_is_gone_meanwhile(
    chain: Chain, faucet: Faucet, anvil: Anvil, max_blocks: int
) -> None:
    for _ in range(3):
        faucet.drip(2)
        anvil.rpc.call("anvil_mine", hex(50))
    rpc, logs, failures = Rpc(chain.rpc.url), list[Log](), 0
    with ThreadPoolExecutor(1) as ahead, closing(Chain([rpc], replace(chain.deployment, finality_depth=0))) as other:
        tail = Tail(other, ahead=ahead)
        logs += events_of(tail.poll(max_blocks))
        url, rpc.url = rpc.url, "http://127.0.0.1:1"
        while failures < 3:
            try:
                logs += events_of(tail.poll(max_blocks))
            except Unavailable:
                failures += 1
        rpc.url = url
        logs += drain(tail, max_blocks)
    assert amounts(logs) == list(range(1, 7))


def test_a_range_that_an_endpoint_refused_is_hardly_asked_for_again(chain: Chain, anvil: Anvil) -> None:
    anvil.rpc.call("anvil_mine", hex(600))
    between, refused = Between(urlsplit(anvil.url).port or 0), 0
    grudge = Grudge()

    def counting(asked: Asked, forward: Forward) -> Answer | None:
        nonlocal refused
        refused += sum(each["method"] == "eth_getLogs" and too_wide(each["params"][0]) for each in asked.calls)
        return grudge(asked, forward)

    with between.interfering(counting), closing(Chain(between.url, chain.deployment)) as grudging:
        drain(Tail(grudging, confirmations=0))
    between.close()
    assert 0 < refused < 15
