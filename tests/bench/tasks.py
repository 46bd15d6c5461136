"""``make bench-tasks``: tasks from data, from the file to the reward.

Built: rows in the shapes of NuminaMath-1.5 and SYNTHETIC-1, in the tokens of SmolLM2 and Qwen3. Drawn: by a worker,
a validator and a trainer, each in a process of its own, which must agree on every token. Judged: bombs of mathematics,
hostile programs and honest ones, by two threads as in the trainer, whose loop goes on meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.localnet.services import ROOT
from deploy.tasks.in_rules import bring_tasks, read_tasks
from protocol.environments.task_set import TaskSet
from protocol.environments.verifiers.registry import verifier
from protocol.errors import Misconfigured
from protocol.node.console import guard
from tests.bench.tasks_data import write
from tests.environments.bombs import BOMBS
from tests.environments.hostile_programs import HOSTILE, TASK
from tests.environments.mbpp_like import TASKS as PROGRAMS
from tests.shapes.__main__ import TOKENIZER
from trainer.inbox import GRADING_SECONDS
from trainer.rewarding import GRADERS

ROWS, DRAWS, REPEATS = 10_000, 1_000, 3
SMOLLM2 = ROOT / "models" / "smollm2"
PARTIES = ("worker", "validator", "trainer")
PROGRAM_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """Rewards and seconds of answers, and the longest time by which the loop beside them was late."""

    rewards: list[float]
    seconds: list[float]
    wall: float
    late: float


@guard
def main() -> int:
    """Prints a table, and one line of JSON; returns 1 if parties disagree or a hostile answer was rewarded."""
    argparse.ArgumentParser(prog="make bench-tasks", description=__doc__).parse_args()
    if not TOKENIZER.is_dir() or not SMOLLM2.is_dir():
        raise Misconfigured("a tokenizer is missing: run `make bench-tasks`, which installs both")
    console = Console(stderr=not sys.stdout.isatty(), width=110)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = write(Path(folder), ROWS)
        built = {}
        for name, tokenizer in {"smollm2": SMOLLM2, "qwen3": with_configuration(Path(folder) / "qwen3")}.items():
            built[name] = built_with(tokenizer, sources, Path(folder) / f"{name}.parquet", console)
            agree(tokenizer, Path(folder) / f"{name}.parquet")
            console.print(f"{name}: {built[name]:.1f} s, {DRAWS} draws agree")
        figures["build_s"] = round(max(built.values()), 2)
        figures["draw_us"] = round(drawn(Path(folder) / "smollm2.parquet"), 2)
    bombs = judged([lambda text=text: verifier("math").grade(text, "1", {}).reward for text in BOMBS])
    figures |= {"bomb_s": round(max(bombs.seconds), 2), "tick_late_s": round(bombs.late, 3)}
    code = verifier("code")
    hostile = judged([lambda text=text: code.grade(text, "", TASK).reward for text in HOSTILE.values()])
    figures |= {"hostile": len(HOSTILE), "hostile_rewarded": sum(map(bool, hostile.rewards))}
    honest = judged([lambda one=one: code.grade(one.right, "", one.info).reward for one in PROGRAMS] * PROGRAM_REPEATS)
    figures |= {
        "programs_s": round(len(honest.rewards) / honest.wall, 1),
        "honest_right": statistics.fmean(honest.rewards),
    }
    figures["tick_late_s"] = max(figures["tick_late_s"], round(hostile.late, 3), round(honest.late, 3))
    figures["bombs_rewarded"] = sum(map(bool, bombs.rewards))
    console.print(_table(figures))
    print(json.dumps(figures))
    return int(bool(figures["hostile_rewarded"] or figures["bombs_rewarded"] or figures["honest_right"] < 1))


def with_configuration(directory: Path) -> Path:
    """Returns a directory with Qwen3's tokenizer and a configuration, as of a model of its vocabulary."""
    from tests.shapes.models import make

    make("qwen3", directory, TOKENIZER)
    return directory


def built_with(model: Path, sources: Sequence[Path], out: Path, console: Console) -> float:
    """Builds the tasks as a person does; returns the seconds that the command took."""
    started = time.perf_counter()
    words = [
        sys.executable,
        "assize.py",
        "tasks",
        "build",
        *map(str, sources),
        "--model",
        str(model),
        "--out",
        str(out),
    ]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def agree(model: Path, tasks: Path) -> None:
    """Raises ``Misconfigured`` unless worker, validator and trainer draw the same tokens."""
    with tempfile.TemporaryDirectory() as folder:
        version = Path(folder) / "version"
        version.mkdir()
        for path in model.iterdir():
            if path.is_file() and path.suffix != ".safetensors":
                (version / path.name).symlink_to(path)
        bring_tasks(tasks, version)
        params = json.dumps(read_tasks(tasks, model).params)
        words = [sys.executable, "-m", "tests.bench.task_draws", str(version), params, str(DRAWS)]
        found = {
            party: subprocess.run([*words, party], cwd=ROOT, check=True, capture_output=True, text=True).stdout
            for party in PARTIES
        }
    if len(set(found.values())) != 1:
        raise Misconfigured(f"the parties draw different tokens: {found}")


def drawn(path: Path) -> float:
    """Returns the microseconds of a draw, the median of some runs."""
    tasks, runs = TaskSet.of_file(path.read_bytes()), []
    seeds = [number.to_bytes(32, "big") for number in range(DRAWS)]
    for _ in range(REPEATS):
        started = time.perf_counter()
        for seed in seeds:
            tasks.problem(seed)
        runs.append((time.perf_counter() - started) / DRAWS * 1e6)
    return statistics.median(runs)


def judged(calls: Sequence[Callable[[], float]]) -> Judged:
    """Has answers judged by as many threads as the trainer has, while a loop waits for them as the trainer's does."""
    calls[0]()  # starts what judges
    seconds: dict[int, float] = {}

    def timed(index: int) -> float:
        began = time.perf_counter()
        reward = calls[index]()
        seconds[index] = time.perf_counter() - began
        return reward

    late, started = 0.0, time.perf_counter()
    with ThreadPoolExecutor(GRADERS) as pool:
        left: list[Future[float]] = [pool.submit(timed, index) for index in range(len(calls))]
        waiting = set(left)
        while waiting:
            began = time.perf_counter()
            waiting = set(wait(waiting, GRADING_SECONDS).not_done)
            late = max(late, time.perf_counter() - began - GRADING_SECONDS)
        wall = time.perf_counter() - started
    return Judged([each.result() for each in left], [seconds[index] for index in range(len(calls))], wall, late)


def _table(figures: dict[str, Any]) -> Table:
    table = Table(title="Tasks from data")
    for head in ("", "", "mark"):
        table.add_column(head, justify="right" if not table.columns else "left")
    marks = {
        "build_s": (f"seconds to build tasks of 2 × {ROWS:,} rows, the slower tokenizer", "60"),
        "draw_us": ("microseconds of a draw", "50"),
        "bomb_s": (f"seconds of the slowest of {len(BOMBS)} bombs", "2"),
        "bombs_rewarded": ("of them rewarded", "0"),
        "tick_late_s": ("seconds by which the trainer's loop was late at most", "0.5"),
        "hostile_rewarded": (f"of {len(HOSTILE)} hostile programs rewarded", "0"),
        "programs_s": ("honest programs judged a second", "8"),
        "honest_right": ("share of them rewarded", "1"),
    }
    for name, (words, mark) in marks.items():
        table.add_row(words, str(figures[name]), mark)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
