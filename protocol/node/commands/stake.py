"""``assize stake``: add to a node's bond, or withdraw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from protocol.node.commands.node import NodeId, withdraw
from protocol.node.commands.transaction import Planned, mined, transaction

if TYPE_CHECKING:
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Add to a node's bond, or withdraw it.")


@app.command("deposit")
@transaction("deposit")
def deposit(sender: Sender, node: NodeId, amount: Annotated[int, typer.Argument(help="Token wei.")]) -> Planned:
    """Add to a node's bond, after a slash or as a margin."""
    from protocol.chain.writing import actions

    return actions.deposit(sender, node, amount), mined(node=node, amount_wei=amount)


app.command("withdraw")(withdraw)
