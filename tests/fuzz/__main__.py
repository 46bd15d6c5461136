"""``make fuzz``: every target under the fuzzer, two at a time; a table for people, then one line of JSON.

    python -m tests.fuzz [--runs 1700000] [--seed 1] [--target NAME] [--keep FOLDER]

RUNS inputs are shared out over the targets. A defect ends its target; the input that found it is printed, and belongs
among the regressions in ``test_parsers``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.fuzz.targets import TARGETS, Target

CONSOLE = Console(stderr=True, width=120)
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")
COLUMNS = ("inputs", "taken", "a second", "edges", "features", "slowest ms", "peak MiB", "defects")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one target: the driver's figures, libFuzzer's coverage, and inputs that found a defect."""

    figures: dict[str, Any]
    coverage: tuple[int, int]
    defects: list[Path]
    last_words: str

    @property
    def row(self) -> list[str]:
        """One line of the table, in the order of ``COLUMNS``."""
        per_second = self.figures["inputs"] / max(self.figures["seconds"], 0.01)
        values = (f"{self.figures['inputs']:,}", f"{self.figures['taken']:,}", f"{per_second:,.0f}", *self.coverage)
        values += (self.figures["slowest_ms"], self.figures["peak_mib"], len(self.defects))
        return [str(value) for value in values]


def fuzz(target: Target, runs: int, seed: int, folder: Path) -> Outcome:
    """Runs one target's driver to its end and reads what it left in ``folder``."""
    folder.mkdir(parents=True)
    words = [sys.executable, "-m", "tests.fuzz.driver", target.name, str(runs), str(seed), str(folder)]
    with (folder / "log").open("wb") as log:
        status = subprocess.run(words, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode
    said = (folder / "log").read_text(errors="replace")
    defects = sorted(path for path in folder.iterdir() if re.match(r"(crash|oom|timeout|leak)-", path.name))
    if not (folder / "figures.json").exists() or (status and not defects):
        raise SystemExit(f"the fuzzer of target {target.name} failed with status {status}:\n{said[-2000:]}")
    cov, features, _ = (int(number) for number in (COVERAGE.findall(said) or [(0, 0, 0)])[-1])
    return Outcome(json.loads((folder / "figures.json").read_text()), (cov, features), defects, said[-1500:])


def main(
    runs: Annotated[int, typer.Option(min=1, help="Inputs over all targets.")] = 1_700_000,
    seed: Annotated[int, typer.Option(min=1)] = 1,
    target: Annotated[str, typer.Option(help="Only this one, with all inputs.")] = "",
    keep: Annotated[Path | None, typer.Option(help="Keep corpus and logs there.")] = None,
) -> None:
    """Fuzz the parsers of what other parties send."""
    if target and target not in TARGETS:
        raise typer.BadParameter(f"there is no target {target!r}: choose one of {', '.join(TARGETS)}")
    chosen = [TARGETS[target]] if target else list(TARGETS.values())
    whole = sum(one.share for one in chosen)
    root = keep or Path(tempfile.mkdtemp(prefix="assize-fuzz-"))
    with Progress(console=CONSOLE) as progress, ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        bar = progress.add_task("fuzzing", total=len(chosen))

        def one(target: Target) -> Outcome:
            outcome = fuzz(target, round(runs * target.share / whole), seed, root / target.name.replace(" ", "-"))
            progress.advance(bar)
            return outcome

        outcomes = dict(zip((one.name for one in chosen), pool.map(one, chosen), strict=True))
    _show(outcomes)
    if keep is None and not any(outcome.defects for outcome in outcomes.values()):
        shutil.rmtree(root)
    raise typer.Exit(any(outcome.defects for outcome in outcomes.values()))


def _show(outcomes: dict[str, Outcome]) -> None:
    table = Table("target", *COLUMNS)
    for name, outcome in outcomes.items():
        table.add_row(name, *outcome.row)
        for path in outcome.defects:
            CONSOLE.print(f"{name}: {path}\n{outcome.last_words}\n{path.read_bytes()[:2000]!r}", markup=False)
    CONSOLE.print(table)
    print(json.dumps(summary(outcomes)))


def summary(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """The JSON line: what all targets came to, and each."""
    figures = {name: outcome.figures for name, outcome in outcomes.items()}
    return {
        "inputs": sum(one["inputs"] for one in figures.values()),
        "defects": sum(len(outcome.defects) for outcome in outcomes.values()),
        "slowest_ms": max(one["slowest_ms"] for one in figures.values()),
        "peak_mib": max(one["peak_mib"] for one in figures.values()),
        "targets": figures,
    }


if __name__ == "__main__":
    typer.run(main)
