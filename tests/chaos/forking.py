"""The chain: slow, silent, stale, cut short, reorganised; transactions dropped, stuck, taken over and reverted."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

from pydantic_core import from_json, to_json

from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.rpc import RpcFault
from tests.chaos.between import Answer, Asked, Forward, error_answer
from tests.chaos.fault import Afterwards, Moment, fault
from tests.chaos.killing import killed_at, killed_before_answering, simulates, through
from tests.chaos.network import Network, stored
from tests.conftest import mining_halted

SILENT_SECONDS = 90.0
TROUBLED_SECONDS = 20.0
REPLACED_SECONDS = 75.0
"""Longer than a sender waits before it bids more."""
GWEI = 10**9
LONGEST_SECONDS = 300.0
FINAL = "was final"
"""What whoever halts says of the block that is gone."""


@fault(2, "indexer killed between insert and cursor")
def indexer_at_its_writes(network: Network) -> list[str]:
    """Some milliseconds after it was given logs, again and again; then from nothing, in the middle of its backfill."""
    found = []
    for milliseconds in (0, 1, 2, 4, 8, 16):
        found += _indexer_killed(network, milliseconds / 1_000)
    _forget_ledger(network)
    network.restart("ledger")
    return found + _indexer_killed(network, 0.01)


def _forget_ledger(network: Network) -> None:
    """Ends the ledger and drops its database and its files: it begins from nothing when it is started again."""
    network.supervisor.end("ledger")
    for path in network.layout.root.glob("ledger.db*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _indexer_killed(network: Network, seconds: float) -> list[str]:
    reads = Afterwards(
        lambda asked: asked.who == "ledger" and "eth_getLogs" in asked.methods,
        lambda answer: b"0x" in answer.body,
        lambda: network.kill("ledger"),
        seconds,
    )
    return through(network, network.rpc_between, reads)


@fault(3, "sender killed after signing, before the journal")
def sender_before_its_journal(network: Network) -> list[str]:
    """Its journal is locked by the time it has signed, so what it signed is nowhere when it dies."""
    name, journal = "coordinator-driver", network.layout.state("coordinator") / "sender.db"
    with closing(sqlite3.connect(journal, isolation_level=None, check_same_thread=False, timeout=10)) as database:

        def locked(_: Answer) -> bool:
            database.execute("BEGIN IMMEDIATE")
            return True

        def killed() -> None:
            network.kill(name)
            database.execute("ROLLBACK")

        return through(network, network.rpc_between, Afterwards(simulates(name), locked, killed, seconds=0.5))


@fault(4, "sender killed after broadcast, before the acknowledgement")
def sender_before_the_acknowledgement(network: Network) -> list[str]:
    """Of coordinator, trainer and validator: the chain has what they sent, and they do not know."""
    found = []
    for who in ("coordinator-driver", "trainer", "validator-1"):
        found += killed_at(network, who, network.rpc_between, _broadcasts(who), killed_before_answering)
    return found


def _broadcasts(who: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.who == who and "eth_sendRawTransaction" in asked.methods


@fault(9, "RPC down for a minute and a half")
def rpc_down(network: Network) -> list[str]:
    """Half of the processes are hung up on, the others wait for an answer that does not come."""
    with network.rpc_between.interfering(lambda asked, forward: None), network.stopped("chain"):
        time.sleep(SILENT_SECONDS)
    return [f"{name} ended while the RPC was down" for name in network.fallen()]


@fault(10, "RPC slow, asking to slow down, logs cut short")
def rpc_poor(network: Network) -> list[str]:
    """Logs are left out by one of two endpoints, which nobody could tell from one alone."""
    with network.rpc_between.interfering(_Poor()):
        time.sleep(TROUBLED_SECONDS)
    return [f"{name} ended while the RPC was poor" for name in network.fallen()]


class _Poor:
    def __init__(self) -> None:
        self._chance = Random(10)

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        luck = self._chance.random()
        if luck < 0.2:
            time.sleep(1.5)
        elif luck < 0.4:
            return Answer(429, {"retry-after": "1"}, b"")
        elif luck < 0.5 and "eth_getLogs" in asked.methods:
            return error_answer(asked, -32005, "query returned more than 10000 results")
        answer = forward(asked)
        if asked.endpoint == 2 and "eth_getLogs" in asked.methods:
            return answer.with_results(_without_last)
        return answer


def _without_last(one: Mapping[str, Any]) -> Any:
    result = one.get("result")
    logs = isinstance(result, list) and result and isinstance(result[0], dict) and "logIndex" in result[0]
    return {**one, "result": result[:-1]} if logs else one


@fault(11, "stale and alternating heads")
def stale_heads(network: Network) -> list[str]:
    """Every other request is answered by a node that is some blocks behind."""
    with network.rpc_between.interfering(_Stale(network)):
        time.sleep(TROUBLED_SECONDS)
    return [f"{name} ended, a lagging node before it" for name in network.fallen()]


class _Stale:
    BLOCKS = 3

    def __init__(self, network: Network) -> None:
        self._network = network
        self._asked = 0

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        self._asked += 1
        if self._asked % 2 or "eth_sendRawTransaction" in asked.methods:
            return forward(asked)
        head = int(self._network.rpc.call("eth_blockNumber"), 16) - self.BLOCKS
        body = from_json(asked.body)
        calls = body if isinstance(body, list) else [body]
        for call in calls:
            call["params"] = [hex(head) if word in ("latest", "pending") else word for word in call["params"]]
        answer = forward(replace(asked, body=to_json(body)))
        unknown = {call["id"] for call in calls if _newer(call, head)}
        return answer.with_results(lambda one: {**one, "result": None} if one["id"] in unknown else one)


def _newer(call: Mapping[str, Any], head: int) -> bool:
    words = [word for word in call["params"] if isinstance(word, str) and word.startswith("0x") and len(word) < 16]
    return call["method"] == "eth_getBlockByNumber" and any(int(word, 16) > head for word in words)


@fault(12, "reorganisations of 1, 8 and 64 blocks")
def reorganised(network: Network) -> list[str]:
    """Every transaction of those blocks is gone, and whoever sent it has to see to that."""
    found = []
    for depth in (1, 8, 64):
        _wait_for_blocks(network, depth)
        network.reorganise(depth)
        try:
            network.goes_on()
        except Exception as error:
            found.append(f"R: after a reorganisation of {depth} blocks: {error}")
    return found


@fault(14, "a reorganisation during a restart, and at the joint of backfill and live")
def reorganised_meanwhile(network: Network) -> list[str]:
    """Mirror and ledger are down while the blocks that they stand at go away; then the ledger starts from nothing."""
    for name in ("ledger", "coordinator-driver", "trainer"):
        network.kill(name)
    network.reorganise(6)
    for name in ("ledger", "coordinator-driver", "trainer"):
        network.restart(name)
    _forget_ledger(network)
    joint = Moment(lambda asked: asked.who == "ledger" and "eth_getLogs" in asked.methods, _reorganising(network))
    network.restart("ledger")
    return through(network, network.rpc_between, joint)


def _reorganising(network: Network) -> Callable[[Asked, Forward], Answer | None]:
    def harm(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        network.reorganise(4)
        return answer

    return harm


@fault(15, "transactions dropped")
def dropped(network: Network) -> list[str]:
    """Whatever waits in the pool is thrown away, three times over."""
    with mining_halted(network.rpc):
        for _ in range(3):
            _wait_for_pending(network)
            network.rpc.call("anvil_dropAllTransactions")
    return []


@fault(16, "transactions stuck under the base fee, then a nonce taken by another program")
def stuck(network: Network) -> list[str]:
    """Bids are too low until they are raised; then the coordinator's key is used elsewhere."""
    with mining_halted(network.rpc):
        _wait_for_pending(network)
        base = int(network.rpc.call("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
        for _ in range(8):
            network.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(min(4 * base + 4 * GWEI, 60 * GWEI)))
            network.rpc.call("evm_mine")
            time.sleep(REPLACED_SECONDS / 8)
        _take_nonce(network)
    return []


def _take_nonce(network: Network) -> None:
    """Sends as the coordinator, like a second program that has its key."""
    address = network.chain.latest().run(network.layout.run).terms.coordinator
    nonce = network.rpc.call("eth_getTransactionCount", address, "latest")
    bid = {"maxFeePerGas": hex(190 * GWEI), "maxPriorityFeePerGas": hex(150 * GWEI)}
    fields = {"from": address, "to": address, "value": "0x1", "nonce": nonce, "gas": hex(21_000), **bid}
    network.rpc.call("anvil_impersonateAccount", address)
    network.rpc.call("eth_sendTransaction", fields)
    network.rpc.call("anvil_stopImpersonatingAccount", address)


@fault(17, "a transaction mined and reverted")
def reverted(network: Network) -> list[str]:
    """Somebody else does, a moment earlier, what the coordinator has just made sure it can do."""
    before = _failed(network)
    found = through(network, network.rpc_between, Moment(_open_to_all(network), _overtaking(network)))
    network.wait_for("the report of a failure", lambda: _failed(network) > before, 30)
    return found


def _open_to_all(network: Network) -> Callable[[Asked], bool]:
    """Picks the simulation of something that anybody may do."""

    def chosen(asked: Asked) -> bool:
        if not simulates("coordinator-driver")(asked):
            return False
        try:
            network.rpc.call("eth_call", _as_anybody(network, asked), "pending")
        except RpcFault:
            return False
        return True

    return chosen


def _overtaking(network: Network) -> Callable[[Asked, Forward], Answer | None]:
    def harm(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        network.rpc.call("eth_sendTransaction", _as_anybody(network, asked))
        return answer

    return harm


def _as_anybody(network: Network, asked: Asked) -> dict[str, Any]:
    call = next(call for call in asked.calls if call["method"] == "eth_estimateGas")["params"][0]
    return {"to": call["to"], "data": call["data"], "from": network.rpc.call("eth_accounts")[0]}


def _failed(network: Network) -> int:
    """How many of its intents the coordinator knows to have failed."""
    journal = network.layout.state("coordinator") / "sender.db"
    return len(stored(journal, "SELECT key FROM intents WHERE state = 'failed'"))


@fault(13, "a reorganisation past finality", fatal=True)
def past_finality(network: Network) -> list[str]:
    """Whoever follows the chain says so and ends; nothing more is paid."""
    _wait_for_blocks(network, FINALITY_DEPTH + 16)
    network.reorganise(FINALITY_DEPTH + 16)
    halting = ("ledger", "coordinator-driver", "trainer")
    time.sleep(TROUBLED_SECONDS)
    before = _height(network)
    time.sleep(5)
    found = [] if _height(network) == before else ["something was sent to a chain that is not what it was"]
    return found + [f"{name} does not say that finality moved" for name in halting if FINAL not in network.log(name)]


def _height(network: Network) -> int:
    return int(network.rpc.call("eth_blockNumber"), 16)


def _wait_for_blocks(network: Network, depth: int) -> None:
    """Waits until so many can be undone: what stood before the market began is not at stake."""
    least = network.begun_at + depth + 1
    network.wait_for(f"block {least}", lambda: _height(network) > least, LONGEST_SECONDS)


def _wait_for_pending(network: Network) -> None:
    network.wait_for("a pending transaction", lambda: network.rpc.call("txpool_status")["pending"] != "0x0", 60)
