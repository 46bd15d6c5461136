"""``assize run report`` and ``assize run watch``: a requester's run, from the chain alone through the ledger's fold."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ledger.commands.options import (
    LARGEST,
    LOCAL,
    Addresses,
    AsJson,
    Coordinators,
    Db,
    NoSync,
    Relays,
    Rpc,
    opened,
    published_by,
)
from protocol.amounts import UNIT, digits_of
from protocol.errors import Rejected
from protocol.node.console import guard
from protocol.node.watching import Once

app = typer.Typer()

RunArgument = Annotated[int, typer.Argument(min=1, max=LARGEST, help="Id of the run.")]
Metrics = Annotated[
    Path | None,
    typer.Option("--metrics", help="The trainer's state folder or metrics.jsonl: reward, accuracy, tokens."),
]


@app.command()
@guard
def report(
    addresses: Addresses,
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--csv", help="File to write the providers to.")] = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="New file for the run's page, whole in itself.")
    ] = None,
    coordinators: Coordinators = None,
    relays: Relays = None,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="Ledger to which the links of --html lead.")
    ] = None,
    metrics: Metrics = None,
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
    no_sync: NoSync = False,
) -> None:
    """Show the costs of a run so far: by provider, by version, and what is left; exit 1 if it does not add up."""
    from ledger.commands.run_report import costs_json, show_costs, write_csv
    from ledger.queries.run_costs import run_costs
    from ledger.store.database import read_position
    from ledger.trainer_metrics import read_metrics

    told = read_metrics(metrics) if metrics is not None else None
    tokens = told.tokens if told is not None else None
    with opened(rpc, addresses, db, no_sync) as (chain, database), database.reading() as connection:
        costs = run_costs(connection, run)
        block = chain.block(read_position(connection).block_number)
        held = chain.pinned(block).run(run)
        if page is not None:
            from ledger.api.blobs import BlobSource
            from ledger.explorer.report import ReportSources, write_run_report

            blobs = BlobSource(coordinators or (), relays or ())
            with closing(blobs), published_by(relays, chain, database) as published:
                accuracy = told.accuracy if told is not None else {}
                write_run_report(page, connection, chain, run, ReportSources(blobs, published, accuracy, ledger))
    if (held.escrow, held.reserved) != (costs.escrow, costs.reserved):
        raise Rejected(
            f"run {run} has {digits_of(costs.escrow)} {UNIT} of escrow by its events, {digits_of(held.escrow)} {UNIT} "
            "by the contract: audit the ledger with: assize ledger audit"
        )
    if out is not None:
        write_csv(out, costs)
    if as_json:
        print(costs_json(costs, block.number, tokens))
        return
    show_costs(costs, _now(block.timestamp), tokens)
    if out is not None:
        print(f"{len(costs.providers)} providers written to {out}")
    if page is not None:
        print(f"the run's page is written to {page}")


def _now(newest: int) -> int:
    """Returns the later of the newest block's second and this machine's: an idle chain's newest block may be old."""
    return max(newest, int(time.time()))


@app.command("watch")
@guard
def watch_run(
    addresses: Addresses,
    run: RunArgument,
    metrics: Metrics = None,
    once: Once = False,
    rpc: Rpc = LOCAL,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's progress, jobs, costs and escrow until Ctrl-C."""
    from ledger.commands.run_watch import run_view
    from ledger.queries.run_progress import run_progress
    from ledger.store.index import sync
    from ledger.trainer_metrics import read_metrics
    from protocol.node.watching import View, watch

    with opened(rpc, addresses, db, no_sync=False) as (chain, database):

        def look() -> View:
            sync(chain, database)
            with database.reading() as connection:
                progress = run_progress(connection, run)
            told = read_metrics(metrics) if metrics is not None else None
            return run_view(progress, told, _now(chain.head().timestamp))

        watch(look, once, as_json)
