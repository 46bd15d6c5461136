"""``assize credits``: buy, show, redeem."""

from __future__ import annotations

from typing import Annotated

import typer

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
from protocol.node.wallet import Keystores

app = typer.Typer(no_args_is_help=True, help="Buy, show and redeem credits.")

Amount = Annotated[int, typer.Argument(help="Credits; one is one token wei.")]


@app.command("show")
@guard
def show_credits(
    addresses: Addresses,
    keystore: Annotated[str | None, typer.Option("--keystore", help="Whose; else --address.")] = None,
    address: Annotated[str | None, typer.Option("--address", help="Any owner.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Show an owner's credits; the ledger says where each came from."""
    keystores = Keystores()
    owners = (
        [address_of(address)]
        if address
        else [keystores.address_of(n) for n in ([keystore] if keystore else keystores.names())]
    )
    with connected(rpc, addresses) as chain:
        reader = chain.pinned(chain.head())
        show([{"owner": owner, "credits_wei": reader.credits_of(owner)} for owner in owners], as_json)


@app.command("buy")
@guard
def buy(
    amount: Amount,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Turn tokens into credits."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.buy(sender.chain.deployment, amount), as_json, ("Credits", amount))
            return
        report(actions.buy_credits(sender, amount, new_intent("buy")), as_json, bought_wei=amount)


@app.command("redeem")
@guard
def redeem(
    amount: Amount,
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Turn credits into tokens."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.redeem(sender.chain.deployment, amount), as_json)
            return
        report(actions.redeem_credits(sender, amount, new_intent("redeem")), as_json, redeemed_wei=amount)
