"""``assize send``: sends a transaction that was signed elsewhere."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Rejected, accessing
from protocol.node.commands.connection import AsJson, DryRun
from protocol.node.commands.transaction import view
from protocol.node.console import jsonable, note

if TYPE_CHECKING:
    from protocol.chain.events import Event
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.receipts import Receipt
    from protocol.chain.writing.signed import SignedTransaction

STDIN = "-"
MOST_CHARACTERS = 1 << 20

_HEX = re.compile(r"(0x)?(?:[0-9a-fA-F]{2})+")


@view
def send(
    chain: Chain,
    signed: Annotated[
        str, typer.Argument(help="The transaction in hex, a file that holds it, or - for standard input.")
    ],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> dict[str, object]:
    """Send a transaction that was signed elsewhere, and wait for its receipt. Sent twice, it takes effect once.

    The call is shown and simulated before it is sent. Commands print transactions to sign with --unsigned.
    """
    from protocol.chain.writing import signed as transactions

    transaction = transactions.decoded(bytes_of(signed), chain.deployment)
    shown = _row(transaction)
    done = transactions.receipt(chain, transaction)
    if done is None:
        transactions.check(chain, transaction)
    if dry_run:
        return shown
    note(f"{'mined before' if done else 'sending'}: {transaction.call.description}, from {transaction.sender}")
    try:
        return shown | _effect(transactions.sent(chain, transaction), as_json)
    except KeyboardInterrupt:
        again = f"send it again to see what became of it: {transaction.tx_hash}"
        raise KeyboardInterrupt(f"interrupted: it may have been sent; {again}") from None


def bytes_of(text: str) -> bytes:
    """Returns a transaction as typed, in a file, or on standard input.

    Raises:
        Misconfigured: the file cannot be read.
        Rejected: the text is not hex.
    """
    typed = text.strip()
    if typed == STDIN:
        typed = sys.stdin.buffer.read(MOST_CHARACTERS).decode("utf-8", "replace")
    elif typed and (not _HEX.fullmatch(typed) or _is_file(typed)):
        with accessing(f"read the transaction {typed[:80]!r}, which is no hex either"):
            typed = Path(typed).read_bytes()[:MOST_CHARACTERS].decode("utf-8", "replace")
    typed = typed.strip()
    if not _HEX.fullmatch(typed):
        raise Rejected(f"not a signed transaction: expected the hex that a signer prints, got {typed[:40]!r}")
    return bytes.fromhex(typed.removeprefix("0x"))


def _is_file(typed: str) -> bool:
    try:
        return Path(typed).is_file()
    except OSError:  # longer than a name can be
        return False


def _row(transaction: SignedTransaction) -> dict[str, object]:
    return {
        "call": transaction.call.description,
        "from": transaction.sender,
        "nonce": transaction.nonce,
        "most_cost_wei": transaction.max_cost,
        "tx_hash": transaction.tx_hash,
    }


def _effect(receipt: Receipt, as_json: bool) -> dict[str, object]:
    """The receipt as shown, with the events of our contracts; in JSON, field by field."""
    effect: dict[str, object] = {"block": receipt.block_number, "fee_wei": receipt.fee}
    events = [log.event for log in receipt.logs]
    if as_json:
        return effect | {"events": [{"event": type(event).__name__} | dict(jsonable(event)) for event in events]}
    return effect | {"events": "\n".join(map(_in_words, events))}


def _in_words(event: Event) -> str:
    from protocol.chain.writing.calls import listed

    return f"{type(event).__name__}({listed((field.name, getattr(event, field.name)) for field in fields(event))})"
