"""Planting: a requester's own worker puts the faults of its trap file into the jobs that the file names.

Each fault is far beyond the bound of fraud, and as consistent as honest work in everything else: the policy's own
activations, logprobs and units, so that only a prefill tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from protocol.wire.traps import Trap, TrapKind
from worker import prover
from worker.producer import Producer
from worker.prover import Task, Work

ELSEWHERE = 1 << 16
"""Distance to a job whose seed no round uses."""

Planted = Callable[[int], Mapping[int, Trap]]
"""Round to its jobs that are traps."""


class Planting(Producer):
    """Makes jobs as honest workers do, but for those that are traps."""

    def __init__(self, *arguments: Any, planted: Planted) -> None:
        super().__init__(*arguments)
        self.planted = planted
        self.log = structlog.get_logger("worker.planting")

    def tasks(self, work: Work) -> list[Task]:
        """Returns the rollouts to make, with the fault of each job that is a trap of this node."""
        tasks, size = super().tasks(work), self.rules.rollouts_per_job
        for job, trap in self.planted(work.round).items():
            if trap.node == work.node and job in work.jobs:
                part = slice(work.jobs.index(job) * size, (work.jobs.index(job) + 1) * size)
                tasks[part] = self.faulty(work, job, trap.kind, tasks[part])
                self.log.info("trap_planted", round=work.round, job=job, kind=trap.kind.name.lower())
        return tasks

    def faulty(self, work: Work, job: int, kind: TrapKind, tasks: Sequence[Task]) -> list[Task]:
        """Returns the tasks of one job with a fault of this kind."""
        if kind is TrapKind.OTHER_PROMPTS:
            others = self._tasks_of(replace(work, round=work.round + ELSEWHERE, jobs=(job,)))
            return [
                Task(other.problem, replace(task.request, prompt_tokens=other.request.prompt_tokens))
                for task, other in zip(tasks, others, strict=True)
            ]
        if kind is TrapKind.OTHER_SEED:
            keys = [other.request.noise_key for other in self._tasks_of(replace(work, jobs=(job + ELSEWHERE,)))]
        else:
            size = self.rules.samples_per_group
            keys = [tasks[place - place % size].request.noise_key for place in range(len(tasks))]
        return [
            replace(task, request=replace(task.request, noise_key=key)) for task, key in zip(tasks, keys, strict=True)
        ]

    def _tasks_of(self, work: Work) -> list[Task]:
        return prover.tasks_of(work, self.deployed, self.rules, self.environment, self.engine.model)
