"""Generates honestly, then edits wrong final answers into right ones and recomputes nothing else.

Its rewards look splendid, its logprobs and activation proofs are those of the tokens it really sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.environments.environment import Environment, Problem
from protocol.tensor.decode import Completion
from protocol.tensor.model import Model
from worker.producer import Producer
from worker.prover import Task


class EditedAnswer(Producer):
    """See above."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        return [
            edited(self.engine.model, self.environment, task.problem, completion)
            for task, completion in zip(tasks, super().complete(tasks), strict=True)
        ]


def edited(model: Model, environment: Environment, problem: Problem, completion: Completion) -> Completion:
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
