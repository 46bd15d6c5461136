"""Weights of a run's tasks as versions go on: a task that is used once is not drawn again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from protocol.environments.environment import Environment
from protocol.environments.task_set import TaskSet
from protocol.wire.tasks import U16, decode_curriculum, encode_curriculum
from trainer.batch import Group


class Curriculum:
    """The weight of each task in the next version.

    ``used_up`` is set once fewer tasks are left to draw than a step needs.
    """

    def __init__(self, tasks: TaskSet, needed: int = 1) -> None:
        """Begins with the weights of ``tasks``, opened at version 0; a step has at least ``needed`` of them."""
        self._needed = max(needed, 2)  # one always stays to be drawn
        self._first, self._once = tasks.opened.weights, tasks.once
        self._held_out = tasks.opened.file.held_out == 1
        self.sources = [source.name for source in tasks.opened.file.header.sources]
        self.weights: U16 = self._first.copy()
        self.used_up = False

    @classmethod
    def of(cls, environment: Environment, needed: int = 1) -> Curriculum | None:
        """Returns the curriculum of tasks from a file, None for those of another environment."""
        return cls(environment, needed) if isinstance(environment, TaskSet) else None

    @property
    def file(self) -> bytes:
        """The file of the next version."""
        return encode_curriculum(self.weights)

    def take(self, file: bytes | None) -> None:
        """Takes up the weights of a published version; those of version 0 if it has no file of them."""
        found = self._first if file is None else decode_curriculum(file, len(self._first))
        self.weights = found.copy()
        self.used_up = self._is_used_up()

    def unused(self, groups: Iterable[Group]) -> Sequence[Group]:
        """Returns the groups to choose from: with content used once, one of each task that no version has used.

        That is the first that has advantages; those without are not trained on, and stay.
        """
        if not self._once:
            return list(groups)
        kept: dict[int | None, Group] = {}
        idle: list[Group] = []
        for group in sorted(groups, key=lambda group: group.key):
            if not group.informative:
                idle.append(group)
            elif group.row is not None and self.weights[group.row] > 0:
                kept.setdefault(group.row, group)
        return [*kept.values(), *idle]

    def use(self, groups: Iterable[Group]) -> None:
        """Takes the tasks of a step from the next version, where content is used once.

        One of them stays where none would be left: a version must have a task to draw.
        """
        if not self._once:
            return
        left = self.weights.copy()
        used = [group.row for group in groups if group.row is not None]
        left[used] = 0
        if used and not np.any(left[~self._held_out]):
            left[used[0]] = self.weights[used[0]]
        self.weights = left
        self.used_up = self._is_used_up()

    def _is_used_up(self) -> bool:
        return self._once and bool(np.count_nonzero(self.weights[~self._held_out]) < self._needed)
