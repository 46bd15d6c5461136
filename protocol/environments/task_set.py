"""Tasks from a file that travels with every version (``protocol.wire.tasks``), drawn by the version's weights.

    digest    SHA-256("assize/tasks/draw/1" ‖ seed)
    source    bytes 0 to 7 of the digest, modulo the sum of the sources' weights, among sources with a task to draw
    task      bytes 8 to 23, modulo the sum of the weights of the source's tasks
    target    bytes 24 to 31, modulo the number of length budgets

So a source's share does not depend on how many tasks it has.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.environments.environment import Problem
from protocol.environments.verifiers.grade import Grade
from protocol.environments.verifiers.registry import verifier
from protocol.errors import Misconfigured, Rejected, Unavailable, accessing
from protocol.wire.canonical import check_depth
from protocol.wire.pins import CURRICULUM_FILE, MAX_TASK_FILE_BYTES, TASKS_FILE, UnfitCheckpoint
from protocol.wire.rules import Rules
from protocol.wire.tasks import MAX_PROMPT_TOKENS, U16, TaskFile, decode_curriculum, decode_tasks, tasks_root
from protocol.wire.units import parse_shape

_DRAW_DOMAIN = b"assize/tasks/draw/1"
_HELD_OUT_DOMAIN = b"assize/tasks/held-out/1"
_OPEN_FILES = 4
MAX_INFO_DEPTH = 32


@dataclass(frozen=True, slots=True, eq=False)
class _SourceDraws:
    """Tasks of one source that may be drawn, with the running sum of their weights. ``until`` is the source's own."""

    name: str
    until: int
    rows: NDArray[np.int64]
    sums: NDArray[np.int64]


class TaskDraws:
    """Draws of training tasks from a file under the weights of a version, one for each task.

    ``sound`` holds the rows whose reference was found fit for their verifier, so that each is read for it once.
    """

    def __init__(self, file: TaskFile, weights: U16) -> None:
        self.file, self.weights = file, weights
        self.sound = set[int]()
        drawn = np.where(file.held_out == 1, 0, weights).astype(np.int64)
        self.sources: list[_SourceDraws] = []
        for index, source in enumerate(file.header.sources):
            rows = np.flatnonzero((file.source == index) & (drawn > 0))
            if len(rows):
                until = source.weight + (self.sources[-1].until if self.sources else 0)
                self.sources.append(_SourceDraws(source.name, until, rows, np.cumsum(drawn[rows])))
        if not self.sources:
            raise UnfitCheckpoint(f"every task has weight 0: expected one to draw in {CURRICULUM_FILE}")

    @property
    def drawable(self) -> list[int]:
        """The rows that may be drawn, ascending."""
        return sorted(row for source in self.sources for row in source.rows.tolist())

    def draw(self, seed: bytes) -> Problem:
        """Returns the training task of a 32-byte ``seed``."""
        digest = hashlib.sha256(_DRAW_DOMAIN + seed).digest()
        chosen = int.from_bytes(digest[:8], "big") % self.sources[-1].until
        source = next(each for each in self.sources if chosen < each.until)
        place = int.from_bytes(digest[8:24], "big") % int(source.sums[-1])
        row = int(source.rows[np.searchsorted(source.sums, place, side="right")])
        return self.problem(row, int.from_bytes(digest[24:], "big"))

    def problem(self, row: int, choice: int) -> Problem:
        """Returns the task of a row; ``choice``, any whole number, selects its length budget if it has one."""
        tokens, header, place = self.file.prompt_tokens(row), self.file.header, int(self.file.budget_at[row])
        source = header.sources[self.file.source[row]].name
        answer, held_out = self.file.answer(row), bool(self.file.held_out[row])
        if place < 0:
            return Problem(tokens, answer, held_out, source, row)
        target = header.targets[choice % len(header.targets)]
        asked = (*tokens[:place], *target.tokens, *tokens[place:])
        return Problem(asked, answer, held_out, source, row, target.length, header.penalty)

    def of_prompt(self, row: int, prompt: Sequence[int]) -> Problem | None:
        """Returns the task of a row if it was set by this prompt, with any of its length budgets; None otherwise."""
        if not 0 <= row < len(self.file):
            return None
        choices = max(1, len(self.file.header.targets))
        problems = (self.problem(row, choice) for choice in range(choices))
        return next((problem for problem in problems if problem.prompt == tuple(prompt)), None)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a run's file. See ``Environment`` for the methods; ``at`` a version they can be drawn.

    root             BLAKE3-256 of the file
    longest_prompt   tokens of the longest prompt
    once             whether a run trains on a task once
    """

    root: bytes
    longest_prompt: int
    once: bool = False
    draws: TaskDraws | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_params(cls, params: Mapping[str, object]) -> TaskSet:
        """Reads ``{"root": "0x…", "longest_prompt": 1..65536, "once": true or false}``; the last may be missing."""
        if unknown := sorted(set(params) - {"root", "longest_prompt", "once"}):
            raise Misconfigured(f"unknown parameter {unknown[0]!r} of tasks: expected 'root', 'longest_prompt', 'once'")
        root, longest, once = params.get("root"), params.get("longest_prompt"), params.get("once", False)
        try:
            digest = bytes.fromhex(root.removeprefix("0x")) if isinstance(root, str) else b""
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise Misconfigured(f"invalid root {root!r} of tasks: expected 0x and 64 hex digits, as tasks show prints")
        if not isinstance(longest, int) or isinstance(longest, bool) or not 1 <= longest <= MAX_PROMPT_TOKENS:
            raise Misconfigured(
                f"invalid longest_prompt {longest!r} of tasks: expected a whole number from 1 to {MAX_PROMPT_TOKENS}"
            )
        if not isinstance(once, bool):
            raise Misconfigured(f"invalid once {once!r} of tasks: expected true or false")
        return cls(digest, longest, once)

    @classmethod
    def of_file(cls, data: bytes, once: bool = False) -> TaskSet:
        """Returns the tasks of a file, to be drawn by its first weights; raises ``Rejected`` if it is none."""
        file = decode_tasks(data)
        return cls(tasks_root(data), file.longest_prompt, once, TaskDraws(file, file.weight.astype(np.uint16)))

    @property
    def params(self) -> dict[str, object]:
        """The parameters of these tasks in a run's rules."""
        return {"root": "0x" + self.root.hex(), "longest_prompt": self.longest_prompt, "once": self.once}

    @property
    def opened(self) -> TaskDraws:
        """The draws; raises ``Misconfigured`` for tasks that no version was opened of."""
        if self.draws is None:
            raise Misconfigured(f"the tasks of this run come with its versions: {TASKS_FILE} was not read yet")
        return self.draws

    def at(self, directory: Path) -> TaskSet:
        """Returns the tasks as the version in ``directory`` sets them; the file is read once for all versions.

        Raises:
            UnfitCheckpoint: the version's files are not those of the run.
            Unavailable: they are not there, or not any more.
        """
        try:
            file = _FILES.of(self, directory)
            _check_fits(self, file, directory)
            curriculum = directory / CURRICULUM_FILE
            weights = file.weight.astype(np.uint16)
            if curriculum.exists():
                with accessing(f"read {curriculum}", Unavailable):
                    weights = decode_curriculum(curriculum.read_bytes(), len(file))
            if not (directory / TASKS_FILE).exists():
                raise Unavailable(f"{directory} was removed while its tasks were read")
        except UnfitCheckpoint:
            raise
        except Rejected as error:
            raise UnfitCheckpoint(str(error)) from error
        return TaskSet(self.root, self.longest_prompt, self.once, TaskDraws(file, weights))

    def problem(self, seed: bytes) -> Problem:
        """Returns the training task of ``seed`` (32 bytes)."""
        if len(seed) != 32:
            raise ValueError(f"invalid problem seed of {len(seed)} bytes: expected 32 bytes")
        return self.opened.draw(seed)

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        """Returns ``count`` distinct held-out tasks of ``seed`` (0 to 2**64 - 1), in the order of a hash."""
        rows = np.flatnonzero(self.opened.file.held_out == 1).tolist()
        if len(rows) < count:
            raise ValueError(f"the tasks have {len(rows)} held-out ones")
        label = _HELD_OUT_DOMAIN + seed.to_bytes(8, "big")
        hashed = sorted((hashlib.sha256(label + row.to_bytes(8, "big")).digest(), row) for row in rows)
        return [self.opened.problem(row, int.from_bytes(digest[:8], "big")) for digest, row in hashed[:count]]

    def reward(self, problem: Problem, completion: str) -> float:
        """Returns the reward that the task's verifier gives."""
        return self.grade(problem, completion).reward

    def grade(self, problem: Problem, completion: str) -> Grade:
        """Returns the reward that the task's verifier gives, and why.

        Raises:
            Rejected: the task cannot be judged.
            Unavailable: what judges answers does not run.
        """
        if problem.row is None:
            raise ValueError("invalid problem: expected one of this file")
        row, sound = self.opened.file.row(problem.row), self.opened.sound
        judge, info = verifier(row.verifier), info_of(row.info)
        if problem.row not in sound:
            judge.check_task(row.answer, info)
            sound.add(problem.row)
        return judge.grade(completion, row.answer, info)

    def check_machine(self) -> None:
        """Raises ``Misconfigured`` if a verifier of these tasks is unknown or does not run on this machine."""
        for name in self.opened.file.verifiers:
            verifier(name).check_machine()

    def most_prompt_tokens(self, rules: Rules) -> int:
        """Returns the tokens of the longest prompt."""
        return self.longest_prompt


def info_of(text: str) -> dict[str, object]:
    """Returns the object that a task's ``info`` column holds; raises ``Rejected`` for other text."""
    check_depth(text.encode(), MAX_INFO_DEPTH)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Rejected("invalid info of a task: expected a JSON object")
    return found


class _OpenFiles:
    """Task files by their root, each read once in a process."""

    def __init__(self) -> None:
        self._lock, self._held = threading.Lock(), dict[bytes, TaskFile]()

    def of(self, tasks: TaskSet, directory: Path) -> TaskFile:
        with self._lock:
            if tasks.root not in self._held:
                file = _read(tasks, directory)
                while len(self._held) >= _OPEN_FILES:
                    self._held.pop(next(iter(self._held)))
                self._held[tasks.root] = file
            return self._held[tasks.root]


_FILES = _OpenFiles()


def _read(tasks: TaskSet, directory: Path) -> TaskFile:
    """Reads a version's file of tasks; raises ``UnfitCheckpoint`` if it is not that of the rules."""
    path = directory / TASKS_FILE
    with accessing(f"read {path}", Unavailable):
        if path.stat().st_size > MAX_TASK_FILE_BYTES:
            raise UnfitCheckpoint(f"{TASKS_FILE} has more than {MAX_TASK_FILE_BYTES} bytes")
        data = path.read_bytes()
    if (root := tasks_root(data)) != tasks.root:
        raise UnfitCheckpoint(f"{TASKS_FILE} has root 0x{root.hex()}: the run's rules name 0x{tasks.root.hex()}")
    return decode_tasks(data)


def _check_fits(tasks: TaskSet, file: TaskFile, directory: Path) -> None:
    """Raises ``UnfitCheckpoint`` if the rules or the model of a version do not allow a prompt of the file."""
    if file.longest_prompt > tasks.longest_prompt:
        raise UnfitCheckpoint(
            f"{TASKS_FILE} has a prompt of {file.longest_prompt} tokens: the run's rules allow {tasks.longest_prompt}"
        )
    config = directory / "config.json"
    with accessing(f"read {config}", Unavailable):
        described = config.read_bytes()
    try:
        vocabulary = parse_shape(json.loads(described)).vocab
    except ValueError as error:
        raise UnfitCheckpoint(f"config.json is not JSON: {error}") from error
    if file.largest_token >= vocabulary:
        raise UnfitCheckpoint(f"{TASKS_FILE} has token {file.largest_token}: the model has {vocabulary}")
