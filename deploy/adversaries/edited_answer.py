"""Generates honestly, then edits wrong final answers into right ones and recomputes nothing else.

Its rewards look splendid, its logprobs and activation proofs are those of the tokens it really sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.tensor.decode import Completion
from worker.daemon import Worker
from worker.prover import Task


class Adversary(Worker):
    """See above."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        return [self._edited(task, completion) for task, completion in zip(tasks, super().complete(tasks), strict=True)]

    def _edited(self, task: Task, completion: Completion) -> Completion:
        model = self.engine.model
        text = model.completion_text(completion.output_tokens)
        if self.environment.reward(task.problem, text) == 1.0:
            return completion
        right = self.environment.with_answer(text, task.problem.answer)
        if right is None:
            return completion
        tokens = model.prompt_tokens(right)
        ending = completion.output_tokens[len(tokens) :]
        return replace(completion, output_tokens=tokens + ending)
