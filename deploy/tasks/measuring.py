"""Pass rates of tasks under a model, by which those are kept that it can learn from.

A task that a model never solves, or always does, gives groups without advantages. INTELLECT-2 kept those that a smaller
model solved in 12.5 to 50% of eight tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from protocol.environments.task_set import TaskSet
from protocol.errors import Misconfigured
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import DTYPES, load_model
from protocol.wire.tasks import TaskFile, TaskRow, encode_tasks
from trainer.rewarding import GRADERS

ROWS_AT_ONCE = 64
_DOMAIN = b"assize/tasks/measure/1"


@dataclass(frozen=True, slots=True)
class TryRules:
    """Settings of the tries: ``samples`` of each task at a temperature, of at most so many tokens."""

    samples: int
    temperature: float
    max_tokens: int
    dtype: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class PassRate:
    """Share of tries of a task that earned reward 1, and the mean tokens of a try."""

    row: int
    rate: float
    tokens: float


@torch.no_grad()
def measure(
    tasks: TaskSet,
    rows: Sequence[int],
    directory: Path,
    way: TryRules,
    progress: Callable[[int], None] = lambda rows: None,
) -> list[PassRate]:
    """Returns the pass rate of each of ``rows`` under the model in ``directory``.

    Raises:
        Misconfigured: the model does not load.
        Unavailable: what judges answers does not run.
    """
    model = load_model(directory, DTYPES[way.dtype])
    model.network.to(way.device)
    found, batch = [], max(1, ROWS_AT_ONCE // way.samples)
    with ThreadPoolExecutor(GRADERS) as graders:
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            problems = [tasks.opened.problem(row, 0) for row in part for _ in range(way.samples)]
            requests = [
                Request(
                    problem.prompt if isinstance(problem.prompt, tuple) else model.text_tokens(problem.prompt),
                    _noise_key(problem.row or 0, index % way.samples),
                    way.max_tokens,
                    way.temperature,
                    (model.stop_token,),
                )
                for index, problem in enumerate(problems)
            ]
            completions = decode(model.network, requests)
            texts = [model.completion_text(done.output_tokens, (model.stop_token,)) for done in completions]
            rewards = list(graders.map(tasks.reward, problems, texts))
            lengths = [len(completion.output_tokens) for completion in completions]
            for place, row in enumerate(part):
                own = slice(place * way.samples, (place + 1) * way.samples)
                rate = float(np.mean([reward == 1.0 for reward in rewards[own]]))
                found.append(PassRate(row, rate, float(np.mean(lengths[own]))))
            progress(min(start + batch, len(rows)))
    return found


def kept(file: TaskFile, rates: Sequence[PassRate], least: float, most: float) -> bytes:
    """Returns the file with those training tasks whose rate is from ``least`` to ``most``, and the held-out ones.

    Raises:
        Misconfigured: a source has none left to train on.
    """
    passing = {each.row for each in rates if least <= each.rate <= most}
    rows: list[TaskRow] = [row for index in range(len(file)) if (row := file.row(index)).held_out or index in passing]
    for index, source in enumerate(file.header.sources):
        if not any(row.source == index and not row.held_out for row in rows):
            raise Misconfigured(
                f"the source {source.name} has no task with a pass rate from {least:g} to {most:g}: widen --keep"
            )
    return encode_tasks(file.header, rows)


def rates_by_source(file: TaskFile, rates: Sequence[PassRate], least: float, most: float) -> list[dict[str, object]]:
    """Returns a row for each source: tasks measured, never and always solved, kept, and mean rate and tokens. PURE."""
    table: list[dict[str, object]] = []
    for index, source in enumerate(file.header.sources):
        own = [each for each in rates if file.source[each.row] == index]
        if own:
            table.append(
                {
                    "source": source.name,
                    "measured": len(own),
                    "never": sum(each.rate == 0 for each in own),
                    "always": sum(each.rate == 1 for each in own),
                    "kept": sum(least <= each.rate <= most for each in own),
                    "pass_rate": round(float(np.mean([each.rate for each in own])), 4),
                    "tokens": round(float(np.mean([each.tokens for each in own])), 1),
                }
            )
    return table


def _noise_key(row: int, sample: int) -> tuple[int, int]:
    digest = hashlib.sha256(_DOMAIN + row.to_bytes(8, "big") + sample.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")
