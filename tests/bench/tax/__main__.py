"""The trust tax: what it costs that nobody is trusted.

For each seed, a bare single-process loop on both cores and then the whole market train the same model with the same
engine, rules, recipe and batch, up to the same staleness, to the same accuracy. Wall-clocks start when the first
accuracy has been measured and end when the target has; measurements in between count on both sides. The tax is the
ratio of seconds per trained token.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.localnet.outcome import Metrics
from deploy.localnet.services import ROOT
from deploy.runs.run_file import BUILTIN

EVALUATE_EVERY = 5
TARGET = 0.80
SEEDS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Side:
    """One training run: wall-clock and processor time in seconds, tokens trained on, the accuracy reached."""

    wall_seconds: float
    tokens: int
    steps: int
    accuracy: float
    parts: dict[str, float]

    @property
    def seconds_per_token(self) -> float:
        """Wall-clock per trained token."""
        return self.wall_seconds / self.tokens


@dataclass(frozen=True, slots=True)
class Pair:
    """Both runs of one seed."""

    seed: int
    bare: Side
    market: Side

    @property
    def wall_ratio(self) -> float:
        """The market's wall-clock over the bare loop's."""
        return self.market.wall_seconds / self.bare.wall_seconds

    @property
    def tax(self) -> float:
        """The market's seconds per trained token over the bare loop's."""
        return self.market.seconds_per_token / self.bare.seconds_per_token


def bare(model: Path, seed: int) -> Side:
    """Runs the bare loop in a process of its own, on all cores."""
    script = (
        "import json, sys; from pathlib import Path; from tests.bench.tax.__main__ import run_bare_side;"
        "print(json.dumps(run_bare_side(Path(sys.argv[1]), int(sys.argv[2]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), str(seed)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return Side(**json.loads(done.stdout.splitlines()[-1]))


def run_bare_side(model: Path, seed: int) -> dict[str, Any]:
    """What ``bare`` runs: the loop to the target, as a dict for JSON."""
    from deploy.runs.run_file import read_run_file
    from protocol.environments.registry import environment
    from tests.bench.tax.bare_loop import run_bare

    run_file = read_run_file(BUILTIN)
    rules, tasks = run_file.rules, run_file.rules.environment
    record = run_bare(
        model,
        environment(tasks.name, tasks.params),
        rules,
        run_file.recipe,
        seed,
        target_accuracy=TARGET,
        evaluate_every=EVALUATE_EVERY,
    )
    measured = [step.accuracy for step in record.steps if step.accuracy is not None]
    # The loop also measures before its first and after its last step; only what lies between counts here.
    share = len(measured) / (len(measured) + 2)
    between = record.evaluation_seconds * share
    return asdict(
        Side(
            wall_seconds=record.wall_seconds + between,
            tokens=record.trained_tokens,
            steps=record.rounds,
            accuracy=measured[-1] if measured else record.accuracy_after,
            parts={
                "generate": record.generation_seconds,
                "train": record.training_seconds,
                "evaluate": between,
                "other": record.other_seconds,
            },
        )
    )


def market(model: Path, seed: int, root: Path) -> Side:
    """Runs the market to the target; its processor time by service says where the time went."""
    words = ["localnet", "run", "--root", str(root), "--model", str(model), "--seed", str(seed)]
    more = ["--target-accuracy", str(TARGET), "--evaluate-every", str(EVALUATE_EVERY), "--no-watch-jurors"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "assize.py"), *words, *more], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        raise SystemExit(f"the market of seed {seed} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    metrics = Metrics.read(root / "state" / "trainer" / "metrics.jsonl")
    report = json.loads((root / "report" / "report.json").read_text())
    # The trainer goes on while versions are evaluated and the last rounds settle.
    last = next(each for each in metrics.evaluations if each["accuracy"] >= TARGET)
    steps = [step for step in metrics.steps if step["time"] <= last["time"]]
    return Side(
        wall_seconds=last["time"] - metrics.began,
        tokens=sum(step["tokens"] for step in steps),
        steps=len(steps),
        accuracy=last["accuracy"],
        parts=report["cpu_seconds"],
    )


def measure(seed: int, folder: Path) -> Pair:
    """Makes the model of a seed and runs both sides on it, one after the other."""
    model = folder / f"model-{seed}"
    subprocess.run(
        [sys.executable, str(ROOT / "assize.py"), "trainer", "make", str(model), "--seed", str(seed)],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    return Pair(seed, bare(model, seed), market(model, seed, folder / f"net-{seed}"))


def show(pairs: list[Pair]) -> None:
    """Prints the table for people, then one line of JSON."""
    console = Console(width=120)
    table = Table(title=f"to accuracy {TARGET:.2f} on {os.cpu_count()} cores")
    for column in (
        "seed",
        "bare s",
        "market s",
        "wall ratio",
        "bare µs/token",
        "market µs/token",
        "trust tax",
        "steps",
    ):
        table.add_column(column, justify="right")
    for pair in pairs:
        table.add_row(
            str(pair.seed),
            f"{pair.bare.wall_seconds:.1f}",
            f"{pair.market.wall_seconds:.1f}",
            f"{pair.wall_ratio:.2f}",
            f"{pair.bare.seconds_per_token * 1e6:.1f}",
            f"{pair.market.seconds_per_token * 1e6:.1f}",
            f"{pair.tax:.2f}",
            f"{pair.bare.steps} / {pair.market.steps}",
        )
    console.print(table)
    console.print(_parts(pairs))
    print(
        json.dumps(
            {
                "ratio": round(statistics.median(pair.tax for pair in pairs), 3),
                "wall_ratio": round(statistics.median(pair.wall_ratio for pair in pairs), 3),
                "seeds": {str(pair.seed): {"bare": asdict(pair.bare), "market": asdict(pair.market)} for pair in pairs},
            }
        )
    )


def _parts(pairs: list[Pair]) -> Table:
    """Where the time goes: seconds of the bare loop by part, processor seconds of the market by service (medians)."""
    table = Table(title="where the time goes, medians")
    table.add_column("part")
    table.add_column("seconds", justify="right")
    for name in pairs[0].bare.parts:
        table.add_row(f"bare: {name}", f"{statistics.median(pair.bare.parts[name] for pair in pairs):.1f}")
    for name in pairs[0].market.parts:
        seconds = statistics.median(pair.market.parts.get(name, 0.0) for pair in pairs)
        table.add_row(f"market, processor: {name}", f"{seconds:.1f}")
    return table


def main() -> None:
    """Measures each seed and shows the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    seeds = parser.parse_args().seeds
    folder = Path(tempfile.mkdtemp(prefix="assize-tax-"))
    pairs = []
    try:
        for seed in seeds:
            print(f"seed {seed}: making the model, then the bare loop, then the market", flush=True)
            pairs.append(measure(seed, folder))
            print(f"seed {seed}: trust tax {pairs[-1].tax:.2f}, wall ratio {pairs[-1].wall_ratio:.2f}", flush=True)
        show(pairs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
