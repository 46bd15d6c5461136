"""What a run of the zoo consists of, and the processes that carry it out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from deploy.adversaries import ADVERSARIES
from deploy.runs.run_file import BUILTIN
from deploy.zoo.trial import rules_in
from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.determinism import ExactShape
from protocol.wire.rules import Rules
from tests.zoo.exchange import Exchange, ExchangeMarket, exchange_markets, play
from tests.zoo.honest import Honest, honest
from tests.zoo.mixed import mixed_stages, version_directories
from tests.zoo.models import policies
from tests.zoo.rows import Row, row_of
from tests.zoo.stage import Stage, one_thread
from worker.engines.registry import make_engine

GROUPS = 2
"""Of 8 samples: jobs of 16 rollouts, half the built-in run's."""
BATCHES = {1: 1, 8: 4, 64: 16, 128: 19}
"""Rollouts an honest worker decodes at a time, and its share of all honest rollouts, in fortieths."""

EXCHANGE_RULES = BUILTIN.with_name("builtin-bfloat16-rules.json")


@dataclass(frozen=True, slots=True)
class CheatTask:
    """An adversary's row under the rules of a file."""

    rules: Path
    name: str
    jobs: int


@dataclass(frozen=True, slots=True)
class HonestTask:
    """An honest worker under the rules of a file."""

    rules: Path
    engine: str
    batch: int
    rollouts: int


@dataclass(frozen=True, slots=True)
class ExchangeTask:
    """A market of exchangeable rewards under the rules of a file."""

    rules: Path
    market: ExchangeMarket


ZooTask = CheatTask | HonestTask | ExchangeTask
Found = Row | Honest | Exchange


def rule_files() -> list[Path]:
    """The built-in run's file first, then calibrated rules for the same task in another dtype."""
    rules = rules_in(BUILTIN)
    return [BUILTIN, *(path for path in sorted(BUILTIN.parent.glob("*rules*.json")) if _other_dtype(path, rules))]


def _other_dtype(path: Path, rules: Rules) -> bool:
    other = rules_in(path)
    return other.environment == rules.environment and other.model.dtype != rules.model.dtype


def plan(jobs: int, byte_jobs: int, rollouts: int, engines: Sequence[str], names: Sequence[str]) -> list[ZooTask]:
    """The tasks: every adversary under the built-in rules, the slight ones under the others too, and honest workers."""
    tasks: list[ZooTask] = []
    for path in rule_files():
        for name in names:
            kind = ADVERSARIES[name].kind
            if path == BUILTIN or kind == "slight":
                tasks.append(CheatTask(path, name, byte_jobs if kind == "bytes" else jobs))
        allowed = [engine for engine in engines if engine in rules_in(path).model.worker_engines]
        for batch, share in BATCHES.items():
            for engine in allowed:
                tasks.append(HonestTask(path, engine, batch, rollouts * share // (40 * len(allowed))))
    return tasks


def exchange_plan(jobs: int, rollouts: int, engines: Sequence[str]) -> list[ZooTask]:
    """The markets of exchangeable rewards: in a dtype that leaves room to steer, honest rollouts by all its engines."""
    rules = rules_in(EXCHANGE_RULES)
    allowed = [engine for engine in engines if engine in rules.model.worker_engines]
    honest_jobs = -(-rollouts // (GROUPS * rules.samples_per_group))
    return [ExchangeTask(EXCHANGE_RULES, market) for market in exchange_markets(jobs, honest_jobs, allowed)]


def carry_out(tasks: Sequence[ZooTask], processes: int) -> Iterator[Found]:
    """Yields results as they come, each task in one of ``processes`` processes."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin) as pool:
        futures: list[Future[Found]] = [pool.submit(work, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()


def work(task: ZooTask) -> Found:
    """Carries out one task."""
    if isinstance(task, ExchangeTask):
        return play(task.market, exchange_stages(task.rules))
    stage = stage_of(task.rules)
    if isinstance(task, HonestTask):
        engine = make_engine(task.engine, stage.rules.model.dtype, exact=ExactShape.of(stage.rules))
        return honest(stage, task.engine, engine, task.batch, task.rollouts)
    return row_of(stage, task.name, task.jobs)


@cache
def stage_of(rules: Path) -> Stage:
    """The stage of the rules in a file, in jobs of 16 rollouts."""
    found = rules_in(rules).model_copy(update={"groups_per_job": GROUPS})
    digits = found.environment.params.get("digits", 3)
    return Stage.of(found, *policies(Arithmetic(int(str(digits)))))


@cache
def exchange_stages(rules: Path) -> list[Stage]:
    """Three versions of the policy under the rules in a file, in jobs of 16 rollouts of several sources."""
    found = rules_in(rules).model_copy(update={"groups_per_job": GROUPS})
    digits = found.environment.params.get("digits", 3)
    return mixed_stages(found, version_directories(Arithmetic(int(str(digits)))))


def _begin() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.disable(logging.WARNING)
    one_thread()
