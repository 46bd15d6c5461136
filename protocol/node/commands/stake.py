"""``assize stake``: add to a node's bond, explain it, or withdraw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from protocol.amounts import positive_wei
from protocol.node.commands.bond import explain
from protocol.node.commands.connection import AmountOrAll
from protocol.node.commands.node import NodeId, withdraw
from protocol.node.commands.transaction import Planned, mined, transaction

if TYPE_CHECKING:
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Add to a node's bond, or withdraw it.")


@app.command("deposit")
@transaction("deposit")
def deposit(sender: Sender, node: NodeId, amount: AmountOrAll) -> Planned:
    """Add to a node's bond, after a slash or as a margin."""
    from protocol.chain.writing import actions

    wei = positive_wei(amount, sender.chain.latest().balance_of(sender.address))
    return actions.deposit(sender, node, wei), mined(node=node, amount_wei=wei)


app.command("explain")(explain)
app.command("withdraw")(withdraw)
