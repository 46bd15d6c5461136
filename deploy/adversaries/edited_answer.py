"""A worker that edits wrong final answers into right ones after generation.

Its rewards are high; its logprobs and activation proofs remain those of the tokens it sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deploy.adversaries.models import arithmetic
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Problem
from protocol.tensor.completions import Completion
from protocol.tensor.model import Model
from worker.producer import Producer
from worker.prover import Task


class EditedAnswer(Producer):
    """Edits wrong final answers into right ones after generation, and recomputes nothing else.

    ``untouched`` holds the indices of jobs in the last work that had nothing to edit.
    """

    untouched: frozenset[int] = frozenset()

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
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
    """Returns the completion with a right answer of the same length, or unchanged if there is none to edit. PURE."""
    text = model.completion_text(completion.output_tokens, (model.stop_token,))
    if environment.reward(problem, text) == 1.0:
        return completion
    right = environment.with_answer(text, problem.answer)
    if right is None:
        return completion
    tokens = model.text_tokens(right)
    ending = completion.output_tokens[len(tokens) :]
    return replace(completion, output_tokens=tokens + ending)
