"""``assize credits``: buy, show, redeem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import positive_wei
from protocol.node.commands.connection import AmountOrAll, address_of
from protocol.node.commands.transaction import Planned, mined, transaction, view
from protocol.node.wallet import Keystores

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Buy, show and redeem credits.")


@app.command("show")
@view
def show_credits(
    chain: Chain,
    keystore: Annotated[str | None, typer.Option(help="Only the owner with this keystore.")] = None,
    address: Annotated[str | None, typer.Option(help="Only the owner with this address.")] = None,
) -> list[dict[str, object]]:
    """Show the credits of an owner, or of every keystore. The ledger shows where credits came from."""
    keystores, reader = Keystores(), chain.pinned(chain.head())
    names = [keystore] if keystore else keystores.names()
    owners = [address_of(address)] if address else [keystores.address_of(name) for name in names]
    return [{"owner": owner, "credits_wei": reader.credits_of(owner)} for owner in owners]


@app.command("buy")
@transaction("buy")
def buy(sender: Sender, amount: AmountOrAll) -> Planned:
    """Turn tokens into credits."""
    from protocol.chain.writing import actions

    wei = positive_wei(amount, sender.chain.latest().balance_of(sender.address))
    return actions.buy_credits(sender, wei), mined(bought_wei=wei)


@app.command("redeem")
@transaction("redeem")
def redeem(
    sender: Sender,
    amount: AmountOrAll,
    to: Annotated[str | None, typer.Option(help="Address to pay the tokens to; else the owner's.")] = None,
) -> Planned:
    """Turn credits into tokens, of the owner or of another address."""
    from protocol.chain.writing import actions

    wei = positive_wei(amount, sender.chain.latest().credits_of(sender.address))
    receiver = address_of(to) if to else sender.address
    return actions.redeem_credits(sender, wei, receiver), mined(redeemed_wei=wei, to=receiver)
