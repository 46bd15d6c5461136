"""Generates honestly, then edits wrong final answers into right ones and recomputes nothing else.

Its rewards look splendid, its logprobs and activation proofs are those of the tokens it really sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from deploy.adversaries.models import arithmetic
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Problem
from protocol.tensor.completions import Completion
from protocol.tensor.model import Model
from worker.producer import Producer
from worker.prover import Task


class EditedAnswer(Producer):
    """Edits wrong final answers into right ones after generation, and recomputes nothing else.

    ``untouched`` are the jobs of the last work, by place, in which there was nothing to edit.
    """

    untouched: frozenset[int] = frozenset()

    @override
    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        honest, sums = super().complete(tasks), arithmetic(self.environment)
        found = [
            edited(self.engine.model, sums, task.problem, completion)
            for task, completion in zip(tasks, honest, strict=True)
        ]
        size = self.rules.rollouts_per_job
        touched = {
            n // size for n, (before, after) in enumerate(zip(honest, found, strict=True)) if before is not after
        }
        self.untouched = frozenset(range(len(tasks) // size)) - touched
        return found


def edited(model: Model, environment: Arithmetic, problem: Problem, completion: Completion) -> Completion:
    """The completion with a right answer, as long as before; itself where it is right, or has no answer. PURE."""
    text = model.completion_text(completion.output_tokens)
    if environment.reward(problem, text) == 1.0:
        return completion
    right = environment.with_answer(text, problem.answer)
    if right is None:
        return completion
    tokens = model.prompt_tokens(right)
    ending = completion.output_tokens[len(tokens) :]
    return replace(completion, output_tokens=tokens + ending)
