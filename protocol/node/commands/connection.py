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
    rpc: str, addresses: Path, keystore: str, password_file: Path | None, fee_cap_gwei: int | None
) -> Iterator[Sender]:
    """Yields a sender for the key of this name, its journal under ``ASSIZE_STATE_DIR`` (else ``~/.assize/state``)."""
    from protocol.chain.writing.fees import Fees
    from protocol.chain.writing.sender import Sender

    with connected(rpc, addresses) as chain:
        wallet = opened(keystore, password_file)
        place = f"{wallet.address.lower()}-{chain.chain_id}-{chain.deployment.start_hash.hex()[:16]}.sqlite"
        sender = Sender(chain, wallet, state_directory() / place, Fees.capped(fee_cap_gwei))
        try:
            yield sender
        finally:
            sender.close()


def address_of(text: str) -> str:
    """Returns an address as typed with its checksum.

    Raises:
        Misconfigured: the text is not an address, or its checksum is wrong.
    """
    from eth_utils.address import is_address, to_checksum_address

    if not is_address(text):
        raise Misconfigured(f"invalid address {text!r}: expected 0x and 40 hex digits with a valid checksum")
    return str(to_checksum_address(text))


def state_directory() -> Path:
    """Returns the directory of the commands' journals: the environment's, else the profile's, else one at home."""
    told = os.environ.get(STATE_DIRECTORY_VARIABLE) or Profile.current().wallet().get("state_dir")
    return Path(told) if told else Path.home() / ".assize" / "state"
