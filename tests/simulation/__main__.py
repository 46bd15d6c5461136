"""``make sim``: many seeds of the simulated chain; a table for people, a line for each fault, then one line of JSON.

python -m tests.simulation [--seeds 1000] [--only 17] [--processes 2]
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.simulation.faults import RATES
from tests.simulation.running import rare_faults, run_seeds
from tests.simulation.scenario import Outcome
from tests.simulation.taping import record

CONSOLE = Console(stderr=True, width=120)
SHOWN_SEEDS = 5
FEWEST_SEEDS = 25
"""From this many seeds on, every kind of fault must have struck in a fifth of them."""


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 1 to this.")] = 1000,
    only: Annotated[int | None, typer.Option(min=1, help="This seed alone.")] = None,
    processes: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
) -> None:
    """Put chain, mirror, ledger and sender through a simulated chain's faults."""
    with tempfile.TemporaryDirectory() as folder:
        CONSOLE.print("recording what real contracts emit")
        tape = record(Path(folder))
    chosen = range(1, seeds + 1) if only is None else [only]
    running = run_seeds(chosen, *tape, processes)
    outcomes = list(track(running, "seeds", total=len(chosen), console=CONSOLE))
    show(outcomes)
    failing = [outcome for outcome in outcomes if outcome.differences or outcome.duplicated or outcome.lost]
    for outcome in failing[:SHOWN_SEEDS]:
        print(f"seed {outcome.seed}, again with `make sim SEED={outcome.seed}`:", *outcome.differences, sep="\n  ")
    rare = rare_faults(outcomes) if len(outcomes) >= FEWEST_SEEDS else {}
    for kind, struck in rare.items():
        print(f"{kind} struck in {struck} of {len(outcomes)} seeds: expected one in five")
    print(json.dumps(summary(outcomes)))
    raise typer.Exit(1 if failing or rare else 0)


def summary(outcomes: list[Outcome]) -> dict[str, int]:
    """The last line."""
    return {
        "seeds": len(outcomes),
        "differences": sum(len(outcome.differences) for outcome in outcomes),
        "intents": sum(outcome.intents for outcome in outcomes),
        "duplicated": sum(outcome.duplicated for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
    }


def show(outcomes: list[Outcome]) -> None:
    """A line for each fault."""
    table = Table("fault", title=f"{len(outcomes)} seeds")
    for column in ("chance", "struck", "seeds", "differences in them"):
        table.add_column(column, justify="right")
    for kind in (*RATES, "finality moved"):
        struck = [outcome for outcome in outcomes if outcome.struck[kind]]
        times, wrong = sum(one.struck[kind] for one in struck), sum(len(one.differences) for one in struck)
        rate = f"{RATES[kind]:.1%}" if kind in RATES else "1 seed in 10"
        table.add_row(kind, rate, f"{times:,}", str(len(struck)), str(wrong))
    console = Console(width=100)
    console.print(table)
    console.print(
        f"{sum(one.events for one in outcomes):,} events in {sum(one.blocks for one in outcomes):,} blocks; "
        f"{sum(one.intents for one in outcomes):,} intents: {sum(one.effects for one in outcomes):,} took effect once, "
        f"{sum(one.failed for one in outcomes):,} were reported failed"
    )


if __name__ == "__main__":
    typer.run(main)
