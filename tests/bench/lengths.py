"""``make bench-lengths``: completions as long as their prompts ask, at what cost in accuracy.

The built-in model is taught to begin with any number of empty lines, whatever number its prompt names. It is trained
in the bare loop on a file of sums with four length budgets, once with a penalty for each token by which a completion
misses its budget, and once without. Correlations are of budgets and mean lengths, on held-out sums.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deploy.runs.run_file import read_run_file
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Problem
from protocol.environments.task_set import TaskSet
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.directory import tokenizer_hash
from protocol.tensor.model import load_tokenizer
from protocol.wire.tasks import LengthTarget, TaskHeader, TaskRow, TaskSource, encode_tasks
from tests.bench.tax.bare_loop import Loop
from trainer.builtin import Warmup, make_builtin
from trainer.config import Recipe

PAUSES, WORKING = (0, 3, 6, 9), 51
"""Empty lines that a prompt asks for, and tokens of the working of three digits with its end-of-text."""
PENALTY, STEPS, SEEDS, HELD_OUT = 0.2, 120, 2, 256


@dataclass(frozen=True, slots=True)
class LengthRun:
    """One run: lengths by budget and accuracy, both of held-out sums, before and after."""

    seed: int
    penalty: float
    lengths_before: dict[int, float]
    lengths: dict[int, float]
    before: float
    accuracy: float

    @property
    def correlation(self) -> float:
        """Correlation of budgets with mean lengths."""
        return statistics.correlation(list(self.lengths), list(self.lengths.values()))


def main() -> None:
    """Prints the table and one line of JSON."""
    parser = argparse.ArgumentParser(prog="make bench-lengths", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    console = Console(stderr=not sys.stdout.isatty(), width=110)
    spawned = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(2, spawned) as pool:
        seeds = range(1, given.seeds + 1)
        models = {seed: pool.submit(make, seed, Path(scratch) / str(seed)) for seed in seeds}
        asked = [(seed, penalty) for seed in seeds for penalty in (PENALTY, 0.0)]
        runs = [pool.submit(train, models[seed].result(), seed, penalty, given.steps) for seed, penalty in asked]
        found = [run.result() for run in runs]
    budgeted, free = [one for one in found if one.penalty], [one for one in found if not one.penalty]
    table = Table(title=f"Mean tokens by budget after {given.steps} steps, {HELD_OUT} held-out sums")
    for head in ("seed", "penalty", *(str(WORKING + pause) for pause in PAUSES), "correlation", "accuracy"):
        table.add_column(head, justify="right")
    for one in found:
        lengths = (f"{one.lengths_before[length]:.1f} to {one.lengths[length]:.1f}" for length in one.lengths)
        accuracy = f"{one.before:.3f} to {one.accuracy:.3f}"
        table.add_row(str(one.seed), str(one.penalty), *lengths, f"{one.correlation:.2f}", accuracy)
    console.print(table)
    figures = {
        "correlation": round(min(one.correlation for one in budgeted), 4),
        "accuracy_lost": round(
            statistics.fmean(one.accuracy for one in free) - statistics.fmean(one.accuracy for one in budgeted), 4
        ),
        "runs": [asdict(one) for one in found],
    }
    print(json.dumps(figures))


def make(seed: int, directory: Path) -> Path:
    """Makes the model that pauses, of a seed."""
    torch.set_num_threads(1)
    make_builtin(directory, seed, Arithmetic(3), Warmup(pause=max(PAUSES)))
    return directory


def tasks_of(directory: Path, penalty: float) -> TaskSet:
    """Returns sums with length budgets as a file of tasks."""
    tokenizer, sums = load_tokenizer(directory), Arithmetic(3)

    def tokens(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    targets = tuple(LengthTarget(WORKING + pause, tokens(f"={pause}")) for pause in PAUSES)
    problems = [sums.problem(n.to_bytes(32, "big")) for n in range(20_000)] + sums.held_out_problems(2 * HELD_OUT, 1)
    rows = [
        TaskRow(tokens(str(one.prompt)), one.answer, "exact", held_out=one.held_out, budget_at=len(one.prompt) - 1)
        for one in problems
    ]
    header = TaskHeader(tokenizer_hash(directory), (TaskSource("sums", 1),), targets, penalty)
    return TaskSet.of_file(encode_tasks(header, rows))


def train(directory: Path, seed: int, penalty: float, steps: int) -> LengthRun:
    """Trains the model with a penalty for missed lengths."""
    torch.set_num_threads(1)
    rules = read_run_file().rules.model_copy(update={"max_tokens": 2 * WORKING})
    tasks = tasks_of(directory, penalty)
    loop = Loop(directory, tasks, rules, Recipe.builtin(steps=steps), seed)
    loop.staleness, loop.problems, loop.lose = rules.async_level, HELD_OUT, lambda round_, group: False
    problems = tasks.held_out_problems(HELD_OUT, seed)
    lengths_before, before = measured(loop, problems)
    for _ in range(steps):
        loop.advance(measured=False)
    lengths, accuracy = measured(loop, problems)
    return LengthRun(seed, penalty, lengths_before, lengths, before, accuracy)


@torch.no_grad()
def measured(loop: Loop, problems: Sequence[Problem]) -> tuple[dict[int, float], float]:
    """Returns the mean tokens of completions by budget, and their accuracy."""
    model, rules = loop.policy.model, loop.rules
    requests = [
        Request(model.prompt_tokens(one.prompt, rules), (n, 0), rules.max_tokens, 1.0, model.stop_tokens(rules))
        for n, one in enumerate(problems)
    ]
    completions = decode(model.network, requests)
    found: dict[Any, list[int]] = {}
    for problem, completion in zip(problems, completions, strict=True):
        found.setdefault(problem.target, []).append(len(completion.output_tokens))
    right = [
        loop.environment.reward(problem, model.completion_text(completion.output_tokens, model.stop_tokens(rules)))
        for problem, completion in zip(problems, completions, strict=True)
    ]
    return {target: round(statistics.fmean(of), 2) for target, of in sorted(found.items())}, statistics.fmean(right)


if __name__ == "__main__":
    main()
