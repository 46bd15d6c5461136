"""Intents happen once or are reported failed, whatever is killed or lost in between."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY

from protocol.chain.events import Dripped, Transfer
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.writing import calls
from protocol.chain.writing.fees import GWEI, Fees
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.node.wallet import Keystores, Wallet
from tests.conftest import ROOT, TOKEN, Anvil, mining_halted, until
from tests.interfering import foreign

MakeWallet = Callable[[str], Wallet]
NOBODY = "0x000000000000000000000000000000000000dEaD"
QUICK = Fees(resend_seconds=0.1)


@pytest.fixture
def wallet(make_wallet: MakeWallet) -> Wallet:
    return make_wallet("alice")


@pytest.fixture
def sender(chain: Chain, wallet: Wallet, tmp_path: Path) -> Iterator[Sender]:
    opened = Sender(chain, wallet, tmp_path / "journal.sqlite", QUICK)
    yield opened
    opened.close()


def test_an_intent_is_mined_and_its_receipt_holds_the_events(sender: Sender, chain: Chain) -> None:
    receipt = sender.send("drip", calls.drip(chain.deployment, sender.address, TOKEN))
    assert receipt.status == 1
    assert [type(log.event) for log in receipt.logs] == [Dripped, Transfer]
    assert receipt.logs[0].event == Dripped(sender.address, TOKEN, TOKEN)
    assert receipt.logs[0].timestamp == chain.block(receipt.block_number).timestamp
    assert chain.latest().balance_of(sender.address) == TOKEN


def test_the_same_key_again_returns_the_same_receipt(sender: Sender, chain: Chain) -> None:
    drip = calls.drip(chain.deployment, sender.address, TOKEN)
    assert sender.send("drip", drip) == sender.send("drip", drip)
    assert chain.latest().balance_of(sender.address) == TOKEN


def test_a_key_cannot_stand_for_two_calls(sender: Sender, chain: Chain) -> None:
    sender.send_once("drip", calls.drip(chain.deployment, sender.address, TOKEN))
    with pytest.raises(Rejected, match=r"the journal has 'drip' as Token\.drip"):
        sender.send_once("drip", calls.drip(chain.deployment, sender.address, 2 * TOKEN))


def test_a_refused_call_is_reported_in_the_contract_s_words_and_costs_no_nonce(sender: Sender, chain: Chain) -> None:
    with pytest.raises(Reverted, match=r"the contract refused: no node 9; .* \(UnknownNode\)") as caught:
        sender.send("retire", calls.retire(chain.deployment, 9))
    assert (caught.value.name, caught.value.arguments) == ("UnknownNode", {"node": 9})
    assert sender.send("drip", calls.drip(chain.deployment, sender.address, 1)).status == 1


def test_many_intents_take_contiguous_nonces(sender: Sender, chain: Chain, anvil: Anvil) -> None:
    receipts = sender.send_many([(f"pay-{i}", calls.pay_native(NOBODY, i)) for i in range(5)])
    assert [receipt.status for receipt in receipts] == [1] * 5
    assert anvil.mined_from(sender.address) == 5
    assert sender.unfinished() == []


def test_what_a_later_call_needs_may_still_be_pending(sender: Sender, chain: Chain) -> None:
    deployment = chain.deployment
    receipts = sender.send_many(
        [
            ("drip", calls.drip(deployment, sender.address, TOKEN)),
            ("approve", calls.approve(deployment, "Credits", TOKEN)),
            ("buy", calls.buy(deployment, TOKEN)),
        ]
    )
    assert len(receipts) == 3
    assert chain.latest().credits_of(sender.address) == TOKEN


def test_a_dropped_transaction_is_sent_again(sender: Sender, anvil: Anvil) -> None:
    with mining_halted(anvil.rpc):
        done: list[object] = []
        thread = threading.Thread(target=lambda: done.append(sender.send_once("pay", calls.pay_native(NOBODY, 1))))
        thread.start()
        (raw,) = wait_for(lambda: [a for i in sender.unfinished() for a in [i.key]])
        assert raw == "pay"
        dropped = wait_for(lambda: anvil.rpc.call("txpool_content")["pending"])
        assert dropped
        anvil.rpc.call("anvil_dropAllTransactions")
    thread.join(10)
    assert len(done) == 1
    assert anvil.mined_from(sender.address) == 1


def wait_for(look: Callable[[], object]) -> object:
    for _ in range(200):
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


class OwnTime:
    """A clock on which nothing takes time but what waits for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


def test_a_stuck_transaction_is_replaced_at_a_higher_fee(
    chain: Chain, wallet: Wallet, anvil: Anvil, tmp_path: Path
) -> None:
    patient = Fees(resend_seconds=5, replace_seconds=20)
    sender = Sender(chain, wallet, tmp_path / "j.sqlite", patient, 1.0, 100, OwnTime())
    with mining_halted(anvil.rpc), pytest.raises(Unavailable, match="is not mined after 100 s; it stays pending"):
        sender.send("pay", calls.pay_native(NOBODY, 3))
    receipt = sender.send("pay", calls.pay_native(NOBODY, 3))
    sender.close()
    attempts = sqlite3.connect(tmp_path / "j.sqlite")
    fees = [fee for (fee,) in attempts.execute("SELECT max_fee FROM attempts ORDER BY rowid")]
    attempts.close()
    assert receipt.status == 1
    assert len(fees) > 1
    assert fees == sorted(fees)
    assert anvil.mined_from(wallet.address) == 1


def test_fees_above_the_cap_are_not_paid(chain: Chain, wallet: Wallet, tmp_path: Path) -> None:
    sender = Sender(chain, wallet, tmp_path / "j.sqlite", Fees(cap=2))
    with pytest.raises(Unavailable, match="underpriced: gas costs"):
        sender.send("pay", calls.pay_native(NOBODY, 1))
    sender.close()


def test_a_cap_in_gwei_replaces_the_default() -> None:
    assert Fees.capped(300).bid(250 * GWEI, GWEI) == 300 * GWEI
    with pytest.raises(Unavailable, match="--fee-cap-gwei"):
        Fees.capped(None).bid(250 * GWEI, GWEI)


def test_a_key_without_gas_is_told_what_it_needs(chain: Chain, tmp_path: Path) -> None:
    poor = Wallet("poor", os.urandom(32))
    sender = Sender(chain, poor, tmp_path / "j.sqlite")
    with pytest.raises(Misconfigured, match="has 0 coin for gas and may need"):
        sender.send("drip", calls.drip(chain.deployment, poor.address, 1))
    sender.close()


def test_two_senders_cannot_share_a_key(sender: Sender, chain: Chain, wallet: Wallet, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="another process already sends transactions of"):
        Sender(chain, wallet, tmp_path / "another place" / "other.sqlite")


def test_a_journal_of_another_key_is_refused(chain: Chain, make_wallet: MakeWallet, tmp_path: Path) -> None:
    Sender(chain, make_wallet("a"), tmp_path / "j.sqlite").close()
    with pytest.raises(Misconfigured, match="give another state directory"):
        Sender(chain, make_wallet("b"), tmp_path / "j.sqlite")


def test_a_nonce_taken_by_another_program_fails_the_intent(
    chain: Chain, wallet: Wallet, anvil: Anvil, tmp_path: Path
) -> None:
    with mining_halted(anvil.rpc):
        sender = Sender(chain, wallet, tmp_path / "j.sqlite", QUICK, wait_seconds=0.01)
        with pytest.raises(Unavailable):
            sender.send_once("pay", calls.pay_native(NOBODY, 1))
        anvil.rpc.call("anvil_dropAllTransactions")
        anvil.rpc.call("eth_sendRawTransaction", foreign(chain, wallet, 0))
        anvil.rpc.call("evm_mine")
    sender.reconcile()
    with pytest.raises(Rejected, match="nonce 0 was taken by another program"):
        sender.send_once("pay", calls.pay_native(NOBODY, 1))
    assert sender.send("again", calls.pay_native(NOBODY, 1)).status == 1
    sender.close()


def test_what_a_reorganisation_undid_is_sent_again(chain: Chain, wallet: Wallet, anvil: Anvil, tmp_path: Path) -> None:
    sender = Sender(chain, wallet, tmp_path / "j.sqlite", QUICK)
    drip = calls.drip(chain.deployment, wallet.address, TOKEN)
    sender.send("drip", drip)
    anvil.rpc.call("anvil_reorg", 1, [])
    assert chain.latest().balance_of(wallet.address) == 0
    sender.reconcile()
    assert sender.send("drip", drip).status == 1
    sender.close()
    assert chain.latest().balance_of(wallet.address) == TOKEN


def test_an_intent_after_one_that_was_undone_leaves_it_its_nonce(sender: Sender, chain: Chain, anvil: Anvil) -> None:
    first, second = calls.pay_native(NOBODY, 1), calls.pay_native(NOBODY, 2)
    sender.send("first", first)
    anvil.rpc.call("anvil_reorg", 1, [])
    assert anvil.mined_from(sender.address) == 0
    assert sender.send("second", second).status == 1
    assert sender.send("first", first).status == 1
    assert anvil.mined_from(sender.address) == 2
    assert int(anvil.rpc.call("eth_getBalance", NOBODY, "latest"), 16) == 3


def test_what_was_undone_is_sent_again_by_a_sender_that_is_tended(sender: Sender, chain: Chain, anvil: Anvil) -> None:
    sender.send("pay", calls.pay_native(NOBODY, 1))
    anvil.rpc.call("anvil_reorg", 1, [])
    time.sleep(2 * QUICK.resend_seconds)
    sender.tend()
    until(lambda: anvil.mined_from(sender.address) == 1, 10, "anvil to mine what it took")


def test_what_is_mined_again_and_reverts_after_a_reorganisation_is_a_failure(
    chain: Chain, wallet: Wallet, make_wallet: MakeWallet, anvil: Anvil, tmp_path: Path
) -> None:
    giver = Sender(chain, make_wallet("giver"), tmp_path / "giver.sqlite", QUICK)
    giver.send("drip", calls.drip(chain.deployment, giver.address, TOKEN))
    sender = Sender(chain, wallet, tmp_path / "j.sqlite", QUICK)
    before = anvil.rpc.call("evm_snapshot")
    giver.send("give", calls.call(chain.deployment, "Token", "transfer", wallet.address, TOKEN))
    passed_on = calls.call(chain.deployment, "Token", "transfer", NOBODY, TOKEN)
    receipt = sender.send_once("pass on", passed_on)
    raw = anvil.rpc.call("eth_getRawTransactionByHash", "0x" + receipt.tx_hash.hex())
    anvil.rpc.call("evm_revert", before)
    anvil.rpc.call("eth_sendRawTransaction", raw)
    anvil.rpc.call("anvil_mine", hex(70))
    sender.reconcile()
    with pytest.raises(Rejected, match="was mined but the contract refused: "):
        sender.send_once("pass on", passed_on)
    sender.close()
    giver.close()


def test_a_sender_whose_final_transactions_are_gone_says_so_at_once(chain: Chain, sender: Sender, anvil: Anvil) -> None:
    before = anvil.rpc.call("evm_snapshot")
    drip = calls.drip(chain.deployment, sender.address, TOKEN)
    sender.send("first", drip)
    anvil.rpc.call("anvil_mine", hex(70))
    time.sleep(2 * QUICK.resend_seconds)
    sender.tend()
    anvil.rpc.call("evm_revert", before)
    with pytest.raises(Unavailable, match=r"has 0 transactions of .*, of which 1 were final"):
        sender.send("second", drip)


def test_what_is_mined_counts_no_longer_as_pending_before_the_next_look(sender: Sender) -> None:
    for number in (1, 2):
        sender.send(f"pay {number}", calls.pay_native(NOBODY, number))
        assert REGISTRY.get_sample_value("assize_sender_pending_intents") == 0
        assert REGISTRY.get_sample_value("assize_sender_oldest_pending_timestamp_seconds") == 0


def test_a_sender_with_nothing_to_watch_asks_nothing(sender: Sender, chain: Chain, anvil: Anvil) -> None:
    sender.send("pay", calls.pay_native(NOBODY, 1))
    anvil.rpc.call("anvil_mine", hex(70))
    time.sleep(2 * QUICK.resend_seconds)
    sender.tend()
    before = chain.rpc.round_trips
    time.sleep(2 * QUICK.resend_seconds)
    sender.tend()
    assert chain.rpc.round_trips == before


def test_a_nonce_that_a_reorganisation_set_free_is_filled(
    chain: Chain, wallet: Wallet, anvil: Anvil, tmp_path: Path
) -> None:
    """Another program takes nonce 0, ours goes on with 1; then the other's transaction is undone and lost."""
    hasty = Sender(chain, wallet, tmp_path / "j.sqlite", QUICK, wait_seconds=0.01)
    with mining_halted(anvil.rpc):
        with pytest.raises(Unavailable):
            hasty.send("lost", calls.pay_native(NOBODY, 1))
        hasty.close()
        anvil.rpc.call("anvil_dropAllTransactions")
        anvil.rpc.call("eth_sendRawTransaction", foreign(chain, wallet, 0))
        anvil.rpc.call("evm_mine")
    sender = Sender(chain, wallet, tmp_path / "j.sqlite", QUICK)
    assert sender.send("next", calls.pay_native(NOBODY, 2)).status == 1
    anvil.rpc.call("anvil_reorg", 2, [])
    anvil.rpc.call("anvil_dropAllTransactions")
    assert sender.send("next", calls.pay_native(NOBODY, 2)).status == 1
    assert anvil.mined_from(wallet.address) == 2
    sender.close()


def test_a_journal_that_another_program_locks_is_waited_for(sender: Sender, chain: Chain, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="cannot use the journal of sent transactions: database is locked"):
            sender.send("pay", calls.pay_native(NOBODY, 1))
        other.execute("ROLLBACK")
    assert sender.send("pay", calls.pay_native(NOBODY, 1)).status == 1


CHILD = """
import sys
from pathlib import Path
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Keystores
rpc, state = sys.argv[1], Path(sys.argv[2])
chain = Chain.connect(rpc, state / "addresses.json")
sender = Sender(chain, Keystores(state).open("alice", "pw"), state / "journal.sqlite")
sender.send("drip", calls.drip(chain.deployment, sender.address, 5))
"""


@contextmanager
def deadly_rpc(upstream: str, forward: bool) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """An RPC that kills its client at the moment of broadcast, before or after passing the transaction on."""
    victims: list[subprocess.Popen[bytes]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            deadly = b"eth_sendRawTransaction" in body
            if deadly and not forward:
                os.kill(victims[0].pid, signal.SIGKILL)
                return
            answer = httpx.post(upstream, content=body, headers={"content-type": "application/json"}).content
            if deadly:
                os.kill(victims[0].pid, signal.SIGKILL)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", victims
        server.shutdown()


@pytest.mark.parametrize("forward", [False, True], ids=["before the broadcast", "after the broadcast"])
def test_a_sender_killed_around_the_broadcast_has_one_effect(
    forward: bool, chain: Chain, anvil: Anvil, tmp_path: Path
) -> None:
    wallet = Keystores(tmp_path).create("alice", "pw", scrypt_n=2**4)
    anvil.fund(wallet.address)
    chain.deployment.save(tmp_path / "addresses.json")
    with deadly_rpc(anvil.url, forward) as (url, victims):
        victims.append(subprocess.Popen([sys.executable, "-c", CHILD, url, str(tmp_path)], cwd=ROOT))
        assert victims[0].wait(30) == -signal.SIGKILL
    until(lambda: anvil.mined_from(wallet.address) == (1 if forward else 0), 10, "anvil to mine what it took")
    subprocess.run([sys.executable, "-c", CHILD, anvil.url, str(tmp_path)], cwd=ROOT, check=True, timeout=30)
    assert anvil.mined_from(wallet.address) == 1
    assert chain.latest().balance_of(wallet.address) == 5


def test_a_lock_dies_with_its_process(chain: Chain, anvil: Anvil, tmp_path: Path) -> None:
    wallet = Keystores(tmp_path).create("alice", "pw", scrypt_n=2**4)
    anvil.fund(wallet.address)
    chain.deployment.save(tmp_path / "addresses.json")
    holder = CHILD + "\nprint('held', flush=True)\nsys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", holder, anvil.url, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(Misconfigured, match="stop it, or use another key"):
        Sender(chain, wallet, tmp_path / "journal.sqlite")
    child.kill()
    child.wait(10)
    child.stdout.close()
    child.stdin.close()
    Sender(chain, wallet, tmp_path / "journal.sqlite").close()


def test_a_dry_simulation_tells_cost_and_call_and_sends_nothing(sender: Sender, chain: Chain, anvil: Anvil) -> None:
    simulation = sender.simulate(calls.drip(chain.deployment, sender.address, 5))
    assert simulation.description == f"Token.drip(to={sender.address}, amount=0.000000000000000005 ASZ)"
    assert simulation.max_cost > 0
    assert anvil.mined_from(sender.address) == 0
    assert json.dumps(simulation.gas)


def test_a_call_that_may_do_more_once_mined_gets_the_gas_it_names(sender: Sender, chain: Chain) -> None:
    drip = calls.drip(chain.deployment, sender.address, TOKEN)
    assert sender.simulate(replace(drip, least_gas=1_000_000)).gas == 1_000_000
    assert sender.simulate(drip).gas == sender.simulate(replace(drip, least_gas=1)).gas < 1_000_000
