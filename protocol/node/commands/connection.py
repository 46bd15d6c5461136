"""Options and connections that the commands share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.errors import Misconfigured
from protocol.node.console import show
from protocol.node.wallet import Keystores, Wallet, read_password

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.calls import Call
    from protocol.chain.writing.receipts import Receipt
    from protocol.chain.writing.sender import Sender

STATE_DIRECTORY_VARIABLE = "ASSIZE_STATE_DIR"

RpcUrl = Annotated[str, typer.Option("--rpc", envvar="ASSIZE_RPC_URL", help="JSON-RPC endpoint of the chain.")]
Addresses = Annotated[Path, typer.Option("--addresses", envvar="ASSIZE_ADDRESSES", help="Address file of the network.")]
KeystoreName = Annotated[
    str, typer.Option("--keystore", envvar="ASSIZE_KEYSTORE", help="Name of the key to sign with.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", envvar="ASSIZE_PASSWORD_FILE", help="File whose first line opens the keystore."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Simulate and show the call; send nothing.")]
DEFAULT_RPC = "http://127.0.0.1:8545"


@contextmanager
def connected(rpc: str, addresses: Path) -> Iterator[Chain]:
    """A checked connection to the network that the address file names."""
    from protocol.chain.reading.client import Chain

    chain = Chain.connect(rpc, addresses)
    try:
        yield chain
    finally:
        chain.close()


def opened(keystore: str, password_file: Path | None) -> Wallet:
    """The key of this name."""
    return Keystores().open(keystore, read_password(password_file, f"password of {keystore}"))


@contextmanager
def sending(rpc: str, addresses: Path, keystore: str, password_file: Path | None) -> Iterator[Sender]:
    """A sender for the key of this name, with its journal under ``ASSIZE_STATE_DIR`` (else ``~/.assize/state``)."""
    from protocol.chain.writing.sender import Sender

    with connected(rpc, addresses) as chain:
        wallet = opened(keystore, password_file)
        place = f"{wallet.address.lower()}-{chain.chain_id}-{chain.deployment.start_hash.hex()[:16]}.sqlite"
        sender = Sender(chain, wallet, state_directory() / place)
        try:
            yield sender
        finally:
            sender.close()


def address_of(text: str) -> str:
    """The checksummed address as typed.

    Raises:
        Misconfigured: it is none, or its checksum is wrong.
    """
    from eth_utils.address import is_address, to_checksum_address

    if not is_address(text):
        raise Misconfigured(f"{text!r} is not an address: want 0x and 40 hex digits, its checksum intact")
    return str(to_checksum_address(text))


def state_directory() -> Path:
    """Where the commands keep their journals."""
    told = os.environ.get(STATE_DIRECTORY_VARIABLE)
    return Path(told) if told else Path.home() / ".assize" / "state"


def new_intent(verb: str) -> str:
    """A key for what was just typed: typing it again means it again."""
    return f"{verb}/{secrets.token_hex(8)}"


def preview(sender: Sender, call: Call, as_json: bool, takes: tuple[str, int] | None = None) -> None:
    """Shows what a call would do and cost; sends nothing.

    Args:
        takes: (contract, token wei) that the call takes from the sender. Where the contract may not take so much yet,
            what is simulated is the approval that comes first: before it the call itself can only be refused.
    """
    first, then = call, None
    if takes is not None:
        from protocol.chain.writing import actions

        approval = actions.missing_approval(sender, *takes)
        first, then = (approval, call.description) if approval else (call, None)
    simulation = sender.simulate(first)
    shown = {
        "would_call": simulation.description,
        "to": first.to,
        "from": sender.address,
        "calldata": first.data,
        "gas": simulation.gas,
        "most_cost_wei": simulation.max_cost,
    }
    show(shown | ({"then": then} if then else {}), as_json)


def carry_out(sender: Sender, call: Call, verb: str, as_json: bool, dry_run: bool, **details: Any) -> None:
    """Sends a call of which the receipt says all there is to say, or shows what it would do."""
    if dry_run:
        preview(sender, call, as_json)
    else:
        report(sender.send(new_intent(verb), call), as_json, **details)


def report(receipt: Receipt, as_json: bool, **details: Any) -> None:
    """Shows what was done, and in which transaction."""
    mined = {"tx_hash": receipt.tx_hash, "block": receipt.block_number, "fee_wei": receipt.fee}
    show(details | mined, as_json)
