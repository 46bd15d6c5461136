"""Task files for people: sources, lengths, prompts in words, and the reward of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from protocol.environments.task_set import TaskSet, info_of
from protocol.environments.verifiers.registry import verifier
from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from deploy.tasks.building import SourceAccount


def summary(path: Path, tasks: TaskSet) -> dict[str, Any]:
    """Returns the properties of a whole file."""
    file = tasks.opened.file
    return {
        "file": str(path),
        "root": tasks.root,
        "bytes": path.stat().st_size,
        "tasks": len(file),
        "longest_prompt": file.longest_prompt,
        "tokenizer": file.header.tokenizer,
        "length_targets": [target.length for target in file.header.targets],
        "length_penalty": file.header.penalty,
    }


def source_rows(tasks: TaskSet) -> list[dict[str, Any]]:
    """Returns a row for each source and verifier of a file."""
    file = tasks.opened.file
    names = np.array(file.table.column("verifier").to_pylist())
    lengths = np.array(file.table.column("prompt_tokens").combine_chunks().value_lengths())
    rows = []
    for index, source in enumerate(file.header.sources):
        for name in sorted(set(names[file.source == index].tolist())):
            chosen = (file.source == index) & (names == name)
            held_out = int(file.held_out[chosen].sum())
            rows.append(
                {
                    "source": source.name,
                    "weight": source.weight,
                    "verifier": name,
                    "training": int(chosen.sum()) - held_out,
                    "held_out": held_out,
                    "prompt_tokens": spans(lengths[chosen].tolist()),
                }
            )
    return rows


def account_row(account: SourceAccount) -> dict[str, Any]:
    """Returns what became of a source's rows."""
    return {
        "source": account.source.name,
        "weight": account.source.weight,
        "read": account.read,
        "left_out": dict(account.left_out.most_common()),
        "duplicates": account.duplicates,
        "kept": account.kept,
        "held_out": account.held_out,
        "prompt_tokens": spans(account.lengths),
    }


def spans(lengths: Sequence[int]) -> list[int]:
    """Returns the least, middle and greatest of some lengths; nothing for none."""
    return [min(lengths), int(np.median(lengths)), max(lengths)] if lengths else []


def spread(tasks: TaskSet, count: int) -> list[int]:
    """Returns up to ``count`` rows, evenly spread over a file."""
    whole = len(tasks.opened.file)
    return sorted({whole * place // count for place in range(count)})


def in_words(tasks: TaskSet, tokenizer: Any, row: int) -> dict[str, Any]:
    """Returns a task with its prompt in words, of its length budgets the first; raises ``Misconfigured`` for no row."""
    file = tasks.opened.file
    if row >= len(file):
        raise Misconfigured(f"invalid row {row}: expected 0 to {len(file) - 1}")
    problem, task = tasks.opened.problem(row, 0), file.row(row)
    return {
        "row": row,
        "source": problem.source,
        "held_out": problem.held_out,
        "weight": task.weight,
        "prompt_tokens": len(problem.prompt),
        "prompt": tokenizer.decode(problem.prompt),
        "verifier": task.verifier,
        "answer": task.answer,
        "info": task.info,
    }


def graded(tasks: TaskSet, row: int, answer: str) -> dict[str, Any]:
    """Returns the reward of an answer to a row, and why.

    Raises:
        Misconfigured: this machine cannot judge it.
        Unavailable: what judges it does not run.
    """
    task = tasks.opened.file.row(row)
    judge = verifier(task.verifier)
    judge.check_machine()
    grade = judge.grade(answer, task.answer, info_of(task.info))
    return {"reward": grade.reward, "why": grade.why}
