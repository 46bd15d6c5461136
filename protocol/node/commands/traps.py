"""``assize traps``: plan, set, list, open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.amounts import positive_wei
from protocol.errors import Rejected
from protocol.node.commands.transaction import Planned, transaction, view
from protocol.node.console import picked

if TYPE_CHECKING:
    from protocol.chain.events import TrapsSet
    from protocol.chain.reading.client import Chain
    from protocol.chain.writing.sender import Sender
    from protocol.chain.writing.trapping import LeafReport
    from protocol.node.trap_file import TrapFile

app = typer.Typer(no_args_is_help=True, help="Plant faults in own nodes' work, to find jurors that do not look.")

File = Annotated[Path, typer.Argument(help="Trap file: private, as it tells every trap in it.")]


@app.command("plan")
@view
def plan(
    chain: Chain,
    run: Annotated[int, typer.Argument(min=1, help="Your run.")],
    out: Annotated[Path, typer.Argument(help="Trap file to write.")],
    node: Annotated[list[int], typer.Option(min=1, help="A worker of your own. Give it once for each.")],
    check_cost: Annotated[str, typer.Option(help="Estimate of what the check of one job costs a juror, in tokens.")],
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that the run is going to have in these rounds.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over which the traps are spread.")],
    bounty: Annotated[str, typer.Option(help="Deposit for each leaf in tokens, which its finders share.")],
    decoys: Annotated[int, typer.Option(min=0, help="Leaves that are no trap, for each that is one.")] = 1,
    days: Annotated[int, typer.Option(min=1, max=180, help="Days after which unopened leaves are lost.")] = 30,
) -> dict[str, object]:
    """Choose traps and write them to a private file; show the rate that is needed."""
    from protocol.node.trap_file import planned
    from protocol.wire.traps import rate_needed, traps_needed

    reader, head = chain.latest(), chain.head()
    penalty = reader.rounds_terms().overturn_penalty
    cost, share = positive_wei(check_cost), positive_wei(bounty)
    count = traps_needed(jobs, cost, penalty)
    first = reader.round_count() + 2
    file = planned(
        chain_id=chain.chain_id,
        contract=chain.deployment.traps,
        run=run,
        nodes=tuple(node),
        kinds=count,
        decoys=count * decoys,
        rounds=range(first, first + rounds),
        bounty_wei=share,
        open_by=head.timestamp + days * 86_400,
    )
    file.write(out)
    return {
        "rate_needed": rate_needed(cost, penalty),
        "penalty_wei": penalty,
        "traps": count,
        "decoys": count * decoys,
        "first_round": first,
        "last_round": first + rounds - 1,
        "deposit_wei": len(file.traps) * share,
        "file": str(out),
    }


@app.command("set")
@transaction("traps")
def set_traps(sender: Sender, file: File) -> Planned:
    """Announce the traps of a file by their Merkle root, and deposit their bounties."""
    from protocol.chain.writing import trapping

    traps = _read(sender.chain, file)
    return trapping.set_traps(sender, traps.run, traps.given(), traps.bounty_wei, traps.first, traps.open_by), _set_row


@app.command("list")
@view
def list_traps(chain: Chain, file: File) -> list[dict[str, object]]:
    """List the leaves of a file with their state: opened, hidden, due, missed or lost."""
    from protocol.chain.writing import trapping

    traps = _read(chain, file)
    return [_row(report) for report in trapping.reports(chain, traps.run, traps.given())]


@app.command("open")
@transaction("traps open")
def open_traps(sender: Sender, file: File) -> Planned:
    """Open every leaf that is due. One that was missed has to be appealed first: assize appeal open ROUND JOB."""
    from protocol.chain.writing import trapping
    from protocol.chain.writing.plans import plan_of

    traps = _read(sender.chain, file)
    due = trapping.opening(sender.chain, traps.run, traps.given())
    if not due:
        raise Rejected("no leaf is due; see: assize traps list FILE")
    opened = [_row(report) for report, _ in due]
    return plan_of(sender, *(call for _, call in due)), lambda receipt: {"opened": opened}


def _read(chain: Chain, path: Path) -> TrapFile:
    from protocol.node.trap_file import TrapFile

    file = TrapFile.read(path)
    file.check(path, chain.chain_id, chain.deployment.traps, file.run)
    return file


def _set_row(made: TrapsSet) -> dict[str, object]:
    row = picked(made, "set", "run", "leaves", "first", "open_by", "root", bounty_wei="bounty")
    return row | {"deposit_wei": made.leaves * made.bounty}


def _row(report: LeafReport) -> dict[str, object]:
    return picked(report.trap, "kind", "node", from_round="from_", to_round="to") | picked(
        report, "state", "round", "job"
    )
