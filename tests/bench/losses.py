"""``make bench-losses``: the built-in model trained with each loss in the bare loop, from rollouts four versions old.

Every loss takes the same models, problems and noise; each seed is another model. Intervals are of Student's t, at 95%.
GSPO's ratio is a mean over a rollout, so it is clipped more tightly, as in its paper, though less at this scale.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from deploy.runs.run_file import read_run_file
from protocol.environments.arithmetic import Arithmetic
from tests.bench.tax.bare_loop import run_bare
from trainer.builtin import make_builtin
from trainer.config import Recipe
from trainer.losses import LOSSES

STALENESS, STEPS, SEEDS = 4, 24, 5
OWN: dict[str, dict[str, float]] = {"gspo": {"epsilon": 0.02}}
"""What a loss changes in the recipe beside its name."""
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t at 97.5%, by the number of seeds."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Accuracy on held-out problems before and after one run, and the share of tokens whose gradient was cut off."""

    loss: str
    seed: int
    before: float
    after: float
    clipped: float


def main() -> None:
    """Prints the table and one line of JSON."""
    parser = argparse.ArgumentParser(prog="make bench-losses", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, choices=T_95)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    given = parser.parse_args()
    console, done = Console(stderr=not sys.stdout.isatty(), width=110), list[Trained]()
    spawned = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(given.jobs, spawned) as pool:
        models = {seed: Path(scratch) / str(seed) for seed in range(1, given.seeds + 1)}
        for seed in [pool.submit(make, seed, directory) for seed, directory in models.items()]:
            console.print(f"made the model of seed {seed.result()}")
        runs = [pool.submit(train, loss, *of, given.steps) for of in models.items() for loss in LOSSES]
        for run in as_completed(runs):
            done.append(run.result())
            console.print(f"{len(done)} of {len(runs)}: {done[-1].loss}, seed {done[-1].seed}: {done[-1].after:.3f}")
    summary = {loss: summed([one for one in done if one.loss == loss]) for loss in LOSSES}
    console.print(_table(summary, given.seeds, given.steps))
    print(json.dumps({"staleness": STALENESS, "steps": given.steps, "seeds": given.seeds, "losses": summary}))


def make(seed: int, directory: Path) -> int:
    """Makes the built-in model of a seed, and returns that."""
    torch.set_num_threads(1)
    make_builtin(directory, seed, Arithmetic(3))
    return seed


def train(loss: str, seed: int, directory: Path, steps: int) -> Trained:
    """Trains it with one loss."""
    torch.set_num_threads(1)
    rules = read_run_file().rules.model_copy(update={"async_level": STALENESS})
    recipe = Recipe.builtin(**{"loss": loss, "steps": steps} | OWN.get(loss, {}))
    record = run_bare(directory, Arithmetic(3), rules, recipe, seed)
    clipped = [step.step.clip_ratio for step in record.steps if step.step is not None]
    return Trained(loss, seed, record.accuracy_before, record.accuracy_after, statistics.fmean(clipped))


def summed(runs: list[Trained]) -> dict[str, float]:
    """Returns means over the seeds, the half-width of the interval of accuracy, and its least."""
    after = [one.after for one in runs]
    half = T_95[len(after)] * statistics.stdev(after) / len(after) ** 0.5
    figures = {
        "before": statistics.fmean(one.before for one in runs),
        "after": statistics.fmean(after),
        "half_width": half,
        "least": min(after),
        "clipped": statistics.fmean(one.clipped for one in runs),
    }
    return {name: round(value, 4) for name, value in figures.items()}


def _table(summary: dict[str, dict[str, float]], seeds: int, steps: int) -> Table:
    table = Table(title=f"Means of {seeds} seeds after {steps} steps, rollouts {STALENESS} versions old")
    for head in ("loss", "before", "after", "95%", "least", "tokens cut off"):
        table.add_column(head, justify="left" if head == "loss" else "right")
    for loss, of in summary.items():
        cells = (f"{of['before']:.3f}", f"{of['after']:.3f}", f"± {of['half_width']:.3f}", f"{of['least']:.3f}")
        table.add_row(loss, *cells, f"{of['clipped']:.1%}")
    return table


if __name__ == "__main__":
    main()
