"""``assize wallet``: keys and their balances."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import positive_wei
from protocol.errors import Misconfigured
from protocol.node.commands.connection import Amount, AsJson, PasswordFile, address_of
from protocol.node.commands.transaction import Planned, mined, transaction, view
from protocol.node.console import guard, show
from protocol.node.wallet import Keystores, read_password

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Make, import and list keys; show balances; take test tokens.")

Name = Annotated[str, typer.Argument(help="Name of the keystore.")]


@app.command("new")
@guard
def new(name: Name, password_file: PasswordFile = None, as_json: AsJson = False) -> None:
    """Make a new key."""
    wallet = Keystores().create(name, read_password(password_file, f"new password for {name}"))
    show({"name": name, "address": wallet.address}, as_json)


@app.command("import")
@guard
def import_key(
    name: Name,
    key_file: Annotated[Path, typer.Option("--key-file", help="File with the private key in hex.")],
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Store an existing private key."""
    try:
        private_key = bytes.fromhex(key_file.read_text().strip().removeprefix("0x"))
    except (OSError, ValueError):  # the error's text might hold the key
        raise Misconfigured(f"cannot read a private key in hex from {key_file}") from None
    wallet = Keystores().keep(name, private_key, read_password(password_file, f"new password for {name}"))
    show({"name": name, "address": wallet.address}, as_json)


@app.command("list")
@guard
def list_keys(as_json: AsJson = False) -> None:
    """List the keystores."""
    keystores = Keystores()
    show([{"name": name, "address": keystores.address_of(name)} for name in keystores.names()], as_json)


@app.command("balance")
@view
def balance(
    chain: Chain,
    keystore: Annotated[str | None, typer.Option(help="Only the key with this name.")] = None,
    address: Annotated[str | None, typer.Option(help="Only this address.")] = None,
) -> list[dict[str, object]]:
    """Show the coin for gas, the tokens and the credits of a key, of an address, or of every keystore."""
    keystores, reader = Keystores(), chain.pinned(chain.head())
    names = [keystore] if keystore else [] if address else keystores.names()
    owners = {name: keystores.address_of(name) for name in names} | ({address: address_of(address)} if address else {})
    return [
        {
            "name": name,
            "address": owner,
            "native_wei": reader.native_balance(owner),
            "token_wei": reader.balance_of(owner),
            "credits_wei": reader.credits_of(owner),
        }
        for name, owner in owners.items()
    ]


@app.command("drip")
@transaction("drip")
def drip(sender: Sender, amount: Amount) -> Planned:
    """Take tokens from the test network's faucet."""
    from protocol.chain.writing import actions

    wei = positive_wei(amount)
    return actions.drip(sender, wei), mined(address=sender.address, amount_wei=wei)
