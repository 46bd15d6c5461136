"""``assize stake``: add to a node's bond, or take it back."""

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
    new_intent,
    preview,
    report,
    sending,
)
from protocol.node.commands.node import withdraw
from protocol.node.console import guard

app = typer.Typer(no_args_is_help=True, help="Add to a node's bond, or take it back.")


@app.command("deposit")
@guard
def deposit(
    node: Annotated[int, typer.Argument(help="Id of the node.")],
    amount: Annotated[int, typer.Argument(help="Token wei.")],
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Add to a node's bond: after a slash, or to keep a margin."""
    from protocol.chain.writing import actions, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            preview(sender, calls.top_up(sender.chain.deployment, node, amount), as_json, ("Registry", amount))
            return
        receipt = actions.deposit(sender, node, amount, new_intent("deposit"))
        report(receipt, as_json, node=node, amount_wei=amount)


app.command("withdraw")(withdraw)
