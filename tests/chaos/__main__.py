"""``make chaos``: every fault once, on the running local network; a row for each, then a line of JSON.

python -m tests.chaos [--only 12 --only 20]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.chaos import broadcasting, forking, killing, lying, starving
from tests.chaos.fault import FAULTS, Fault
from tests.chaos.invariants import broken
from tests.chaos.network import Network, make_small_model

FAULTS_A_NETWORK = 8
"""After some eighty versions the model answers nearly all sums: few groups have advantages, and steps take minutes."""

LISTED = (killing, forking, starving, lying, broadcasting)
"""The modules whose faults are on the list."""


@dataclass(frozen=True, slots=True)
class Borne:
    """What came of one fault: seconds that it lasted and that the network took to go on, and what was broken."""

    fault: Fault
    seconds: float
    going_on_seconds: float | None
    broken: tuple[str, ...]


def main(only: Annotated[list[int] | None, typer.Option(help="These faults, by number.")] = None) -> None:
    """Strike the local network, and see what holds."""
    console = Console(width=130)
    if unknown := set(only or ()) - set(FAULTS):
        raise typer.BadParameter(f"there is no fault {min(unknown)}: they are 1 to {max(FAULTS)}")
    with tempfile.TemporaryDirectory() as folder:
        console.print("making the model, starting the network", style="dim")
        model = Path(folder) / "model"
        make_small_model(model)
        chosen = [fault for number, fault in sorted(FAULTS.items()) if not only or number in only]
        came = list(told(console, bear_all(Path(folder) / "net", model, chosen)))
    show(console, came)
    failed = [one.fault.number for one in came if one.broken]
    print(json.dumps({"faults": len(came), "held": len(came) - len(failed), "broken": failed}))
    raise typer.Exit(1 if failed or len(came) < len(chosen) else 0)


def bear_all(root: Path, model: Path, chosen: Iterable[Fault]) -> Iterator[Borne]:
    """Strikes networks, each with a fault after another: up to ``FAULTS_A_NETWORK``, or to one that is fatal."""
    waiting, number = sorted(chosen, key=lambda each: (each.fatal, each.number)), 0
    root.mkdir()
    while waiting:
        number += 1
        with Network(root / str(number), model) as network:
            network.start(endless=True)
            network.goes_on()
            for _ in range(min(FAULTS_A_NETWORK, len(waiting))):
                fault = waiting.pop(0)
                yield bear(network, fault)
                if fault.fatal:
                    break


def bear(network: Network, fault: Fault) -> Borne:
    """Strikes, lets the network go on, and checks every invariant."""
    started, going_on = time.monotonic(), None
    found: list[str] = []
    try:
        found += fault.strike(network)
        seconds = time.monotonic() - started
        if not fault.fatal:
            going_on = network.goes_on()
            found += broken(network)
    except Exception as error:  # whatever it is, the other faults are still to come
        seconds = time.monotonic() - started
        found.append(f"R: {type(error).__name__}: {error}")
    return Borne(fault, seconds, going_on, tuple(found))


def told(console: Console, came: Iterator[Borne]) -> Iterator[Borne]:
    """Says what came of each at once: all of them take half an hour."""
    for one in came:
        console.print(f"{one.fault.number:>2} {one.fault.what}: {'; '.join(one.broken) or 'held'}", style="dim")
        yield one


def show(console: Console, came: Iterable[Borne]) -> None:
    """A row for each fault."""
    table = Table("", "fault", "lasted, s", "next version after, s", "held")
    for one in sorted(came, key=lambda each: each.fault.number):
        going_on = "-" if one.going_on_seconds is None else f"{one.going_on_seconds:.0f}"
        held = "yes" if not one.broken else "\n".join(one.broken)
        table.add_row(str(one.fault.number), one.fault.what, f"{one.seconds:.0f}", going_on, held)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
