"""``make bench-start``: how long common commands take to start; a table for people, then one line of JSON.

Each runs as a process of its own on a fresh anvil with the contracts, in turns with the others. Processor time is that
of the process and its children; both are medians.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.conftest import ROOT, Anvil, deploy_on
from tests.typing_in import Desk

COMMANDS = (("--help",), ("wallet", "list"), ("node", "list"), ("wallet", "balance", "--keystore", "alice"))


@dataclass(frozen=True, slots=True)
class Start:
    """One command: medians of processor and wall seconds."""

    command: str
    processor_seconds: float
    wall_seconds: float


def main(runs: Annotated[int, typer.Option(min=1, help="Runs of each command.")] = 9) -> None:
    """Measure how commands start."""
    with tempfile.TemporaryDirectory() as folder:
        anvil = Anvil(Path(folder))
        try:
            starts = measured(Desk.of(Path(folder), anvil, deploy_on(anvil)).environment, runs)
        finally:
            anvil.stop()
    table = Table("command", title=f"medians of {runs} runs")
    for column in ("processor s", "wall s"):
        table.add_column(column, justify="right")
    for start in starts:
        table.add_row(start.command, f"{start.processor_seconds:.2f}", f"{start.wall_seconds:.2f}")
    Console(width=80).print(table)
    print(json.dumps({"runs": runs, "starts": [asdict(start) for start in starts]}))


def measured(environment: Mapping[str, str], runs: int) -> list[Start]:
    """Runs the commands in turns, once before it counts: the first run compiles and fills the disk's cache."""
    for words in COMMANDS:
        once(environment, words)
    taken = [[once(environment, words) for words in COMMANDS] for _ in range(runs)]
    return [
        Start("assize " + " ".join(words), *(round(statistics.median(one), 3) for one in zip(*mine, strict=True)))
        for words, mine in zip(COMMANDS, zip(*taken, strict=True), strict=True)
    ]


def once(environment: Mapping[str, str], words: Sequence[str]) -> tuple[float, float]:
    """Processor and wall seconds of one run."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    line = [sys.executable, str(ROOT / "assize.py"), *words]
    subprocess.run(line, cwd=ROOT, env=dict(os.environ) | environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    typer.run(main)
