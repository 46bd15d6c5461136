"""``make calibrate``: the rules of the built-in run, measured from nothing: models, honest rollouts, cheats, picture.

Models are those of two seeds, as they are made, after a few and after all steps of the bare loop, since weights are
trained on while their rules stand. They are kept in ``.calibration`` and ``.zoo`` and made once. With ``--model NAME``
the rules of deploy/runs/NAME.toml are measured instead, on models/NAME: in a short form, and without cheats.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from deploy.adversaries import adversary
from deploy.adversaries.models import make_once
from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.environments.registry import environment
from protocol.node.console import guard
from protocol.wire.rules import Rules
from tests.bench.tax.bare_loop import Loop
from tests.zoo.models import policies
from trainer.builtin import Warmup
from trainer.config import Recipe
from validator.calibration.draft import draft
from worker.engines.registry import make_engine
from worker.specimens import NOWHERE, make_specimens

ROOT = Path(__file__).resolve().parents[2]
KEPT_IN = ROOT / ".calibration"
SEEDS = (1, 2)
CHEATS = {
    "other dtype": "other-dtype",
    "int8": "int8",
    "fp8": "fp8",
    "temperature 0.95": "temperature-0.95",
    "one step older": "stale-policy",
}
"""Shown beside honest work, by what the picture calls them."""

CHEATING_ROLLOUTS, CHEATING_SEED = 512, 99
COMMON_BATCH = 64
SHORT_ROLLOUTS = 320


@dataclass(frozen=True, slots=True)
class Models:
    """Directories: of the policies, of the one that cheats are asked for, and of the version before it."""

    policies: tuple[Path, ...]
    cheated: Path
    older: Path


@guard
def main() -> None:
    """Makes what is missing, then calibrates; options after ``--`` are those of `assize validator calibrate`."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.calibrate", description=__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--model", metavar="NAME", help="calibrate the run file of this name, in a short form")
    parser.add_argument("--engines", default="transformers,vllm")
    parser.add_argument("--rollouts", type=int, default=3200, help="of each model by each engine")
    parser.add_argument("more", nargs="*", help="after --: options of `assize validator calibrate`")
    given = parser.parse_args()
    if given.model:
        raise SystemExit(calibrate_short(given.model, given.more))
    torch.set_num_threads(1)
    rules = draft(BUILTIN, given.dtype, None, tuple(given.engines.split(",")))
    tasks = environment(rules.environment.name, rules.environment.params)
    assert isinstance(tasks, Arithmetic)
    models = make_models(tasks)
    against = [f"{shown}={folder}" for shown, folder in make_cheats(rules, models).items()]
    name = "builtin" if given.dtype == "float32" else f"builtin-{given.dtype}"
    runs = BUILTIN.parent
    words: list[object] = ["--run-file", BUILTIN, "--dtype", given.dtype, "--engines", given.engines]
    words += ["--rollouts", given.rollouts, "--out", runs / f"{name}-rules.json"]
    words += ["--picture", runs / f"{name}-calibration.png"]
    words += ["--keep", KEPT_IN / f"{given.dtype}-honest"]
    words += [word for model in models.policies for word in ("--model", model)]
    words += [word for each in against for word in ("--against", each)]
    line = [sys.executable, "-m", "assize", "validator", "calibrate", *map(str, words), *given.more]
    raise SystemExit(subprocess.run(line, cwd=ROOT, check=False).returncode)


def calibrate_short(name: str, more: Sequence[str]) -> int:
    """Calibrates a run file's rules on its model as it is and as the bare loop leaves it; returns the exit code."""
    run = read_run_file(BUILTIN.with_name(f"{name}.toml"))
    first, last = ROOT / "models" / name, KEPT_IN / f"{name}-v{run.recipe.steps}"
    if not last.is_dir():
        torch.set_num_threads(2)
        print(f"training {name} for {run.recipe.steps} steps", file=sys.stderr, flush=True)
        tasks = environment(run.rules.environment.name, run.rules.environment.params)
        KEPT_IN.mkdir(exist_ok=True)
        train(first, tasks, run.recipe, SEEDS[0], last, run.rules)
    words: list[object] = ["--run-file", run.path, "--chat", "--short", "--rollouts", SHORT_ROLLOUTS]
    words += ["--batches", "1,8,64", "--out", run.path.with_name(f"{name}-rules.json")]
    words += ["--picture", run.path.with_name(f"{name}-calibration.png"), "--model", first, "--model", last]
    line = [sys.executable, "-m", "assize", "validator", "calibrate", *map(str, words), *more]
    return subprocess.run(line, cwd=ROOT, check=False).returncode


def make_models(tasks: Arithmetic) -> Models:
    """Makes the models that are not there yet."""
    recipe = Recipe.builtin()
    found: list[Path] = []
    for seed in SEEDS:
        first = make_once(KEPT_IN / f"seed{seed}-v0", seed, tasks, Warmup())
        last = KEPT_IN / f"seed{seed}-v{recipe.steps}"
        if not last.is_dir():
            print(f"training {first.name} for {recipe.steps} steps", file=sys.stderr, flush=True)
            train(first, tasks, recipe, seed, last, read_run_file().rules)
        found += [first, last]
    older, cheated = policies(tasks)
    return Models((*found, cheated), cheated, older)


def train(first: Path, tasks: Environment, recipe: Recipe, seed: int, last: Path, rules: Rules) -> None:
    """Trains with the bare loop, and keeps what comes of it."""
    with torch.enable_grad():
        loop = Loop(first, tasks, rules, recipe, seed)
        loop.staleness, loop.lose = rules.async_level, lambda round_, group: False
        for _ in range(recipe.steps):
            loop.advance(measured=False)
        loop.policy.save_weights(last, {})


def make_cheats(rules: Rules, models: Models) -> dict[str, Path]:
    """Has every cheat make specimens, and returns their folders by the name to show."""
    return {shown: make_cheat(rules, models, shown, name) for shown, name in CHEATS.items()}


@torch.no_grad()
def make_cheat(rules: Rules, models: Models, shown: str, name: str) -> Path:
    """One cheat's specimens, made anew: asked for one policy, it knows the version before as well."""
    folder = KEPT_IN / f"{rules.model.dtype}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    print(f"a cheat generates {CHEATING_ROLLOUTS} rollouts: {shown}", file=sys.stderr, flush=True)
    tasks = environment(rules.environment.name, rules.environment.params)
    producer = adversary(name)(make_engine("transformers", rules.model.dtype), rules, tasks, NOWHERE)
    for version, directory in enumerate((models.older, models.cheated)):
        producer.load(version, directory)
    batches: Sequence[int] = [COMMON_BATCH]
    make_specimens(producer, models.cheated, shown, batches, CHEATING_ROLLOUTS, CHEATING_SEED, folder)
    return folder


if __name__ == "__main__":
    main()
