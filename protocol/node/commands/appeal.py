"""``assize appeal``: open, list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from protocol.node.commands.connection import address_of
from protocol.node.commands.transaction import Planned, transaction, view
from protocol.node.console import picked

if TYPE_CHECKING:
    from protocol.chain.events import AppealOpened
    from protocol.chain.reading.client import Chain
    from protocol.chain.structs import Appeal, Round
    from protocol.chain.writing.sender import Sender

app = typer.Typer(no_args_is_help=True, help="Appeal against verdicts, list and show appeals.")


@app.command("open")
@transaction("appeal")
def open_appeal(
    sender: Sender,
    round_: Annotated[int, typer.Argument(metavar="ROUND", min=1, help="The round of the disputed verdict.")],
    job: Annotated[int, typer.Argument(min=0, max=255, help="The disputed job.")],
) -> Planned:
    """Appeal against the verdict on one job for a deposit; missing credits are bought with tokens."""
    from protocol.chain.writing import appealing

    return appealing.open_appeal(sender, round_, job), _opened_row


@app.command("list")
@view
def list_appeals(
    chain: Chain, appellant: Annotated[str | None, typer.Option(help="Only appeals of this owner.")] = None
) -> list[dict[str, object]]:
    """List appeals with the disputed verdict, the appellant and the state."""
    from protocol.chain.writing import appealing

    only, found = address_of(appellant) if appellant else None, appealing.appeals(chain)
    return [_row(number, *found[number]) for number in found if only in (None, found[number][0].appellant)]


@app.command("show")
@view
def show_appeal(
    chain: Chain, number: Annotated[int, typer.Argument(metavar="APPEAL", min=1, help="Number of the appeal.")]
) -> dict[str, object]:
    """Show one appeal and its outcome in credits."""
    from protocol.chain.writing import appealing

    row = _row(number, *appealing.appeal_numbered(chain, number))
    decision = appealing.decision_on(chain, number)
    if decision is None:
        return row | {"decided": None}
    amounts = {f"{name}_wei": name for name in ("fees", "awarded", "forfeited")}
    return row | picked(decision, "decided", **amounts)


def _opened_row(opened: AppealOpened) -> dict[str, object]:
    names = ("appeal", "round", "job", "against", "node")
    return picked(opened, *names, deposit_wei="deposit", drawn_by="deadline")


def _row(number: int, appeal: Appeal, trial: Round, appealed: Round) -> dict[str, object]:
    from protocol.chain.structs import State, verdict_in

    ended = trial.state in (State.SETTLED, State.VOID)
    row = {"appeal": number} | picked(appeal, "round", "job", "node", "appellant", "against", deposit_wei="deposit")
    verdict = verdict_in(appealed.accepted, appealed.fraud, appeal.job) if ended else None
    return row | {"state": trial.state, "verdict": verdict}
