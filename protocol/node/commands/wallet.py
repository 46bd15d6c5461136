"""``assize wallet``: keys, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Misconfigured
from protocol.node.commands.connection import (
    DEFAULT_RPC,
    Addresses,
    AsJson,
    DryRun,
    KeystoreName,
    PasswordFile,
    RpcUrl,
    address_of,
    connected,
    new_intent,
    preview,
    report,
    sending,
)
from protocol.node.console import guard, show
from protocol.node.wallet import Keystores, read_password

app = typer.Typer(no_args_is_help=True, help="Keystores: new, import, list, balance, drip.")

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
    key_file: Annotated[Path, typer.Option("--key-file", help="File that holds the private key in hex.")],
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Keep an existing private key."""
    try:
        private_key = bytes.fromhex(key_file.read_text().strip().removeprefix("0x"))
    except (OSError, ValueError):  # the error's text might hold the key
        raise Misconfigured(f"cannot read a private key in hex from {key_file}") from None
    wallet = Keystores().keep(name, private_key, read_password(password_file, f"new password for {name}"))
    show({"name": name, "address": wallet.address}, as_json)


@app.command("list")
@guard
def list_keys(as_json: AsJson = False) -> None:
    """List the keys kept here."""
    keystores = Keystores()
    show([{"name": name, "address": keystores.address_of(name)} for name in keystores.names()], as_json)


@app.command("balance")
@guard
def balance(
    addresses: Addresses,
    keystore: Annotated[str | None, typer.Option("--keystore", help="Whose; else --address, else all.")] = None,
    address: Annotated[str | None, typer.Option("--address", help="Any address.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Show coin for gas, tokens and credits."""
    keystores = Keystores()
    names = [keystore] if keystore else [] if address else keystores.names()
    whose = {name: keystores.address_of(name) for name in names} | ({address: address_of(address)} if address else {})
    with connected(rpc, addresses) as chain:
        reader = chain.pinned(chain.head())
        rows = [
            {
                "name": name,
                "address": owner,
                "native_wei": reader.native_balance(owner),
                "token_wei": reader.balance_of(owner),
                "credits_wei": reader.credits_of(owner),
            }
            for name, owner in whose.items()
        ]
    show(rows, as_json)


@app.command("drip")
@guard
def drip(
    amount: Annotated[int, typer.Argument(help="Token wei.")],
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Take tokens from the test network's faucet."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.drip(sender.chain.deployment, sender.address, amount), as_json)
            return
        receipt = actions.drip(sender, amount, new_intent("drip"))
        report(receipt, as_json, address=sender.address, amount_wei=amount)
