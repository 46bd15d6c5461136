"""Options, connections and parsing that the commands share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import Misconfigured
from protocol.node.profile import Profile
from protocol.node.wallet import Keystores, Wallet, read_password

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.account import Account
    from protocol.chain.writing.sender import Sender

STATE_DIRECTORY_VARIABLE = "ASSIZE_STATE_DIR"

RpcUrl = Annotated[
    str,
    typer.Option(
        "--rpc",
        envvar="ASSIZE_RPC_URL",
        help="RPC endpoint, else the network's; comma-separated ones are cross-checked.",
    ),
]
Addresses = Annotated[
    Path,
    typer.Option("--addresses", envvar="ASSIZE_ADDRESSES", help="Address file of the deployment, else the network's."),
]
KeystoreName = Annotated[
    str,
    typer.Option("--keystore", envvar=["ASSIZE_KEYSTORE", "ETH_KEYSTORE"], help="Keystore to sign with: name or file."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar=["ASSIZE_PASSWORD_FILE", "ETH_PASSWORD"],
        help="File whose first line opens the keystore.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on one line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Simulate the first call and send nothing.")]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Print the transaction as JSON, for a Safe or an offline signer; send none.")
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Address that signs elsewhere, or a keystore's name: with --unsigned or --dry-run."),
]
FeeCap = Annotated[
    int | None,
    typer.Option("--fee-cap-gwei", envvar="ASSIZE_FEE_CAP_GWEI", min=1, help="Highest bid, in gwei per gas; else 200."),
]
NodePasswordFile = Annotated[
    Path | None, typer.Option(help="File whose first line opens the node's keystore; else as for the owner's.")
]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Tokens, such as 48, 1.5 or '20 ASZ'; or 5wei.")]
AmountOrAll = Annotated[
    str, typer.Argument(metavar="AMOUNT", help="Tokens, such as 48, 1.5 or '20 ASZ'; or 5wei, or all.")
]
DEFAULT_RPC = "http://127.0.0.1:8545"


@contextmanager
def connected(rpc: str, addresses: Path) -> Iterator[Chain]:
    """Yields a checked connection to the network that the address file names."""
    from protocol.chain.reading.client import Chain

    chain = Chain.connect(rpc, addresses)
    try:
        yield chain
    finally:
        chain.close()


def opened(keystore: str, password_file: Path | None) -> Wallet:
    """Opens the keystore of this name."""
    return Keystores().open(keystore, read_password(password_file, f"password of {keystore}"))


@contextmanager
def sending(
    rpc: str,
    addresses: Path,
    keystore: str,
    password_file: Path | None,
    fee_cap_gwei: int | None,
    sends: bool = True,
) -> Iterator[Sender]:
    """Yields a sender for the key of this name, its journal under ``ASSIZE_STATE_DIR`` (else ``~/.assize/state``).

    One that only simulates (``sends`` is false) sends nothing that an earlier command left either.
    """
    from protocol.chain.writing.fees import Fees
    from protocol.chain.writing.sender import Sender

    with connected(rpc, addresses) as chain:
        wallet = opened(keystore, password_file)
        place = journal_path(chain, wallet.address)
        sender = Sender(chain, wallet, place, Fees.capped(fee_cap_gwei), resumes=sends)
        try:
            yield sender
        finally:
            sender.close()


@contextmanager
def drafting(rpc: str, addresses: Path, whose: str | None, fee_cap_gwei: int | None) -> Iterator[Account]:
    """Yields an address that can plan and simulate, given as such or by a keystore that states it; opens no key."""
    from protocol.chain.writing.account import Account
    from protocol.chain.writing.fees import Fees

    if whose is None:
        raise Misconfigured("whose transaction? give --from ADDRESS, or the name of a keystore")
    address = owner_of(whose)
    with connected(rpc, addresses) as chain:
        yield Account(chain, address, Fees.capped(fee_cap_gwei))


def journal_path(chain: Chain, address: str) -> Path:
    """Returns the file in which the commands of this key record what they send on this chain."""
    return state_directory() / f"{address.lower()}-{chain.chain_id}-{chain.deployment.start_hash.hex()[:16]}.sqlite"


def owner_of(text: str) -> str:
    """Returns an address as typed, or the one that the keystore of this name or file states."""
    return address_of(text) if text.startswith("0x") else Keystores().address_of(text)


def address_of(text: str) -> str:
    """Returns an address as typed with its checksum.

    Raises:
        Misconfigured: the text is not an address, or its checksum is wrong.
    """
    from eth_utils.address import is_checksum_address, is_hex_address, to_checksum_address

    typed = text.removeprefix("0x").removeprefix("0X")
    plain = typed in (typed.lower(), typed.upper())  # without a checksum
    if not is_hex_address(text) or not (plain or is_checksum_address(text)):
        raise Misconfigured(f"invalid address {text!r}: expected 0x and 40 hex digits with a valid checksum")
    return str(to_checksum_address(text))


def state_directory() -> Path:
    """Returns the directory of the commands' journals: the environment's, else the profile's, else one at home."""
    told = os.environ.get(STATE_DIRECTORY_VARIABLE) or Profile.current().wallet().get("state_dir")
    return Path(told) if told else Path.home() / ".assize" / "state"
