"""``python -m tests.bench.sender.payers KIND RPC FOLDER FIRST LAST KEY``: pays one wei to each of many addresses, once.

``ours`` sends through ``Sender``; ``naive`` as many programs do with web3.py: ask for the nonce, sign, send, wait for
the receipt, and try the whole again after an error. The last line is how many each was told had failed.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected, Unavailable
from protocol.node.wallet import Wallet

BATCH = 25
TRIES = 8
RECEIPT_SECONDS = 6


def payee(number: int) -> str:
    """The address that an intent pays to."""
    return to_checksum_address(keccak(text=f"payee {number}")[-20:])


def ours(rpc: str, folder: Path, numbers: range, key: bytes) -> int:
    """Pays through the sender, batch after batch, as often as it takes."""
    failed = 0
    sender = _opened(rpc, folder, key)
    for first in range(numbers.start, numbers.stop, BATCH):
        part = range(first, min(first + BATCH, numbers.stop))
        intents = [(f"pay/{number}", calls.pay_native(payee(number), 1)) for number in part]
        while True:
            try:
                sender.send_many(intents)
                break
            except Unavailable:
                time.sleep(0.1)
            except Rejected:
                failed += 1
                break
    _until_final(sender)
    sender.close()
    return failed


def _opened(rpc: str, folder: Path, key: bytes) -> Sender:
    while True:
        try:
            chain = Chain.connect(rpc, folder / "addresses.json")
            fees = Fees(resend_seconds=1.0, replace_seconds=10.0)
            return Sender(chain, Wallet("payer", key), folder / f"{key.hex()[:8]}.sqlite", fees)
        except Unavailable:
            time.sleep(0.1)


def _until_final(sender: Sender) -> None:
    """A daemon would go on tending its sender; this one does for some blocks more."""
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        with suppress(Unavailable):
            sender.tend()
        time.sleep(0.5)


def naive(rpc: str, folder: Path, numbers: range, key: bytes) -> int:
    """Pays with web3.py alone."""
    from web3 import HTTPProvider, Web3

    w3, wallet, failed = Web3(HTTPProvider(rpc)), Wallet("payer", key), 0
    for number in numbers:
        for _ in range(TRIES):
            try:
                fields = {
                    "type": 2,
                    "chainId": 31337,
                    "to": payee(number),
                    "value": 1,
                    "gas": 21_000,
                    "data": b"",
                    "maxFeePerGas": 10**11,
                    "maxPriorityFeePerGas": 10**9,
                    "nonce": w3.eth.get_transaction_count(wallet.address, "pending"),  # type: ignore[arg-type]
                }
                sent = w3.eth.send_raw_transaction(wallet.sign_transaction(fields))
                w3.eth.wait_for_transaction_receipt(sent, timeout=RECEIPT_SECONDS, poll_latency=0.05)
                break
            except Exception:
                continue
        else:
            failed += 1
    return failed


def main() -> None:
    kind, rpc, folder, first, last, key = sys.argv[1:]
    pay = {"ours": ours, "naive": naive}[kind]
    print(pay(rpc, Path(folder), range(int(first), int(last)), bytes.fromhex(key)))


if __name__ == "__main__":
    main()
