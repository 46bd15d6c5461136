"""A task file in a run: its root in the rules, and the file among those of version 0."""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.environments.environment import check_machine
from protocol.environments.task_set import TaskSet, info_of
from protocol.environments.verifiers.registry import verifier
from protocol.errors import Misconfigured, Rejected, accessing
from protocol.tensor.directory import shape_of, tokenizer_hash
from protocol.wire.pins import MAX_TASK_FILE_BYTES, TASKS_FILE
from protocol.wire.rules import TASKS, EnvironmentRules, Rules


def read_tasks(path: Path, model: Path, once: bool = False) -> TaskSet:
    """Reads a file of tasks for a run that begins with ``model``.

    Raises:
        Misconfigured: it is no such file, it is of another tokenizer or vocabulary, it has a task whose answers cannot
            be judged, or this machine lacks what judges them.
    """
    tasks = open_tasks(path, once)
    check_tokenizer(path, tasks, model)
    check_machine(tasks)
    file = tasks.opened.file
    for index in range(len(file)):
        row = file.row(index)
        try:
            verifier(row.verifier).check_task(row.answer, info_of(row.info))
        except Rejected as error:
            raise Misconfigured(f"{path}: invalid task {index}: {error}") from error
    return tasks


def open_tasks(path: Path, once: bool = False) -> TaskSet:
    """Reads a file of tasks; raises ``Misconfigured`` if it is none."""
    with accessing(f"read the tasks {path}"):
        if path.stat().st_size > MAX_TASK_FILE_BYTES:
            raise Misconfigured(f"{path} has more than {MAX_TASK_FILE_BYTES} bytes: expected fewer tasks")
        data = path.read_bytes()
    try:
        return TaskSet.of_file(data, once)
    except Rejected as error:
        raise Misconfigured(f"cannot use the tasks {path}: {error}: expected a file of assize tasks build") from error


def check_tokenizer(path: Path, tasks: TaskSet, model: Path) -> None:
    """Raises ``Misconfigured`` if the prompts of ``path`` are not in the tokens of ``model``."""
    file = tasks.opened.file
    if file.header.tokenizer != tokenizer_hash(model):
        raise Misconfigured(
            f"{path} is of another tokenizer than {model}'s: build it again with assize tasks build --model {model}"
        )
    if file.largest_token >= (vocabulary := shape_of(model).vocab):
        raise Misconfigured(f"{path} has token {file.largest_token}: the model in {model} has {vocabulary}")


def with_tasks(rules: Rules, tasks: TaskSet) -> Rules:
    """Returns ``rules`` whose tasks are these. Their prompts are whole, so nothing is put around them.

    The result pins no checkpoint: that of the run holds the tasks' file.
    """
    changed = {
        "environment": EnvironmentRules(name=TASKS, params=tasks.params),
        "model": rules.model.model_copy(update={"checkpoint": None}),
        "prompt_before": "",
        "prompt_after": "",
    }
    return rules.model_copy(update=changed)


def bring_tasks(path: Path, directory: Path) -> None:
    """Puts the file of tasks among a model's."""
    target = directory / TASKS_FILE
    with accessing(f"write {target}"):
        shutil.copyfile(path, target)
