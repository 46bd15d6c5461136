"""``assize wallet``: keys and their balances."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import positive_wei
from protocol.errors import Misconfigured
from protocol.node.commands.connection import (
    Amount,
    AmountOrAll,
    AsJson,
    DryRun,
    PasswordFile,
    address_of,
    journal_path,
    owner_of,
)
from protocol.node.commands.transaction import Planned, mined, transaction, view
from protocol.node.console import guard, show
from protocol.node.wallet import Keystores, read_password

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Make, import and list keys; show balances; take test tokens; send.")

Name = Annotated[str, typer.Argument(help="Name of the keystore.")]
KeystoreArgument = Annotated[str, typer.Argument(metavar="KEYSTORE", help="Name of the keystore, or a file.")]


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
    key_file: Annotated[Path | None, typer.Option("--key-file", help="File with the private key in hex.")] = None,
    keystore_file: Annotated[
        Path | None, typer.Option("--keystore-file", help="Keystore of Foundry, Geth, Ape or another tool.")
    ] = None,
    its_password_file: Annotated[
        Path | None, typer.Option(help="File whose first line opens that keystore; else as for the new one.")
    ] = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Store an existing private key, or the key of another tool's keystore."""
    if keystore_file is not None and key_file is None:
        opened = read_password(its_password_file or password_file, f"password of {keystore_file}")
        new = read_password(password_file, f"new password for {name}")
        wallet = Keystores().adopt(name, keystore_file, opened, new)
        show({"name": name, "address": wallet.address}, as_json)
        return
    if key_file is None or keystore_file is not None:
        raise Misconfigured("give one of --key-file and --keystore-file")
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
    rows = [{"name": name, "address": keystores.address_of(name), "of": "assize"} for name in keystores.names()]
    for name in keystores.foundry_names():
        rows.append(
            {"name": name, "address": keystores.stated_address(name) or "shown by its password", "of": "foundry"}
        )
    show(rows, as_json)


@app.command("address")
@guard
def address(name: KeystoreArgument, password_file: PasswordFile = None, as_json: AsJson = False) -> None:
    """Show the address of a keystore; one that does not state it is opened."""
    keystores = Keystores()
    stated = keystores.stated_address(name)
    found = stated or keystores.open(name, read_password(password_file, f"password of {name}")).address
    show({"name": name, "address": found}, as_json)


@app.command("export")
@guard
def export(
    name: KeystoreArgument,
    out: Annotated[Path, typer.Argument(help="File to write; none that exists is replaced.")],
    as_json: AsJson = False,
) -> None:
    """Copy a keystore, encrypted as it is, for other tools: cast, Geth and Ape open it with its password."""
    Keystores().export(name, out)
    show({"name": name, "file": str(out)}, as_json)


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


@app.command("sent")
@view
def sent(
    chain: Chain,
    whose: Annotated[str, typer.Argument(metavar="KEYSTORE", help="Keystore that states its address, or an address.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Most transactions shown.")] = 10,
) -> list[dict[str, object]]:
    """Show what this machine's commands sent with a key, the newest first, and what became of it."""
    from protocol.chain.writing.account import Account
    from protocol.chain.writing.progress import history

    account = Account(chain, owner_of(whose))
    found = history(account, journal_path(chain, account.address), count)
    return [{"nonce": intent.nonce, "became": became} for intent, became in found]


@app.command("drip")
@transaction("drip")
def drip(sender: Sender, amount: Amount, dry_run: DryRun = False) -> Planned:
    """Take tokens from the test network's faucet, and gas where the chain gives it."""
    from protocol.chain.writing import actions
    from protocol.chain.writing.faucet import give_gas

    wei = positive_wei(amount)
    if not dry_run:
        give_gas(sender.chain.rpc, sender.address)
    return actions.drip(sender, wei), mined(address=sender.address, amount_wei=wei)


@app.command("send")
@transaction("send")
def send(
    sender: Sender,
    to: Annotated[str, typer.Argument(help="Address, or name of a keystore.")],
    amount: AmountOrAll,
    coin: Annotated[bool, typer.Option("--coin", help="Send the chain's coin, which pays for gas.")] = False,
) -> Planned:
    """Send tokens, or the chain's coin."""
    from protocol.chain.writing import actions

    receiver = owner_of(to)
    if coin:
        wei = positive_wei(amount)
        return actions.send_coin(sender, receiver, wei), mined(to=receiver, native_wei=wei)
    wei = positive_wei(amount, sender.chain.latest().balance_of(sender.address))
    return actions.send_tokens(sender, receiver, wei), mined(to=receiver, amount_wei=wei)
