"""``assize appeal``: open, list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
    sending,
)
from protocol.node.console import guard, show

if TYPE_CHECKING:
    from protocol.chain.structs import Appeal, Round

app = typer.Typer(no_args_is_help=True, help="Have a verdict tried again.")


@app.command("open")
@guard
def open_appeal(
    round_: Annotated[int, typer.Argument(metavar="ROUND", min=1, help="The round whose verdict is wrong.")],
    job: Annotated[int, typer.Argument(min=0, max=255, help="The job.")],
    addresses: Addresses,
    keystore: KeystoreName,
    rpc: RpcUrl = DEFAULT_RPC,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
) -> None:
    """Appeal against the verdict on one job, by a deposit; missing credits are bought with tokens."""
    from protocol.chain.writing import appealing, calls

    with sending(rpc, addresses, keystore, password_file) as sender:
        if dry_run:
            case = appealing.case_of(sender.chain, round_, job)
            appealing.check_deposit(sender, case)
            missing = appealing.missing_credits(sender, case)
            if missing:
                preview(sender, calls.buy(sender.chain.deployment, missing), as_json, ("Credits", missing))
            else:
                preview(sender, appealing.appeal_call(sender.chain, case), as_json)
            return
        opened = appealing.open_appeal(sender, round_, job, new_intent("appeal"))
        shown = {
            "appeal": opened.appeal,
            "round": opened.round,
            "job": opened.job,
            "against": opened.against,
            "node": opened.node,
            "deposit_wei": opened.deposit,
            "drawn_by": opened.deadline,
        }
        show(shown, as_json)


@app.command("list")
@guard
def list_appeals(
    addresses: Addresses,
    appellant: Annotated[str | None, typer.Option(help="Only appeals of this owner.")] = None,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """List appeals: against what, by whom, and how they stand."""
    from protocol.chain.writing import appealing

    only = address_of(appellant) if appellant else None
    with connected(rpc, addresses) as chain:
        found = appealing.appeals(chain)
    show([_row(number, *found[number]) for number in found if only in (None, found[number][0].appellant)], as_json)


@app.command("show")
@guard
def show_appeal(
    number: Annotated[int, typer.Argument(metavar="APPEAL", min=1, help="The appeal's number.")],
    addresses: Addresses,
    rpc: RpcUrl = DEFAULT_RPC,
    as_json: AsJson = False,
) -> None:
    """Show one appeal, and what it came to in credits."""
    from protocol.chain.writing import appealing

    with connected(rpc, addresses) as chain:
        appeal, trial = appealing.appeal_numbered(chain, number)
        decision = appealing.decision_on(chain, number)
    came_to = (
        {"decided": None}
        if decision is None
        else {
            "decided": decision.decided,
            "fees_wei": decision.fees,
            "covered_wei": decision.covered,
            "awarded_wei": decision.awarded,
            "forfeited_wei": decision.forfeited,
        }
    )
    show(_row(number, appeal, trial) | came_to, as_json)


def _row(number: int, appeal: Appeal, trial: Round) -> dict[str, object]:
    from protocol.chain.structs import State, Verdict, verdict_in

    ended = {State.SETTLED: verdict_in(trial.accepted, trial.fraud, appeal.job), State.VOID: Verdict.VOID}
    return {
        "appeal": number,
        "round": appeal.round,
        "job": appeal.job,
        "node": appeal.node,
        "appellant": appeal.appellant,
        "against": appeal.against,
        "deposit_wei": appeal.deposit,
        "state": trial.state,
        "verdict": ended.get(trial.state),
    }
