"""Tasks, and the rewards of answers to them.

An environment turns a 32-byte seed into a problem, and a problem with a completion into a reward. Workers, validators
and the trainer all derive both from the same seed and the same text, so implementations are pure, exact and free of
torch: the same bytes in give the same prompt and the same reward on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Problem:
    """One task.

    prompt      text given to the policy
    answer      result that a correct completion arrives at
    held_out    reserved for evaluation: such a problem is never set for training
    """

    prompt: str
    answer: str
    held_out: bool


@runtime_checkable
class Environment(Protocol):
    """A family of problems with fixed parameters."""

    def problem(self, seed: bytes) -> Problem:
        """Returns the training problem of a 32-byte ``seed``, never a held-out one.

        Raises:
            ValueError: ``seed`` does not have 32 bytes.
        """

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        """Returns ``count`` distinct held-out problems, determined by ``seed`` (0 to 2**64 - 1).

        Raises:
            ValueError: there are not that many.
        """

    def reward(self, problem: Problem, completion: str) -> float:
        """Returns the reward of ``completion`` (without prompt and end-of-text), in [0, 1]. Any text has one."""


@runtime_checkable
class TypedProblems(Protocol):
    """An environment that also understands problems as people type them."""

    def typed(self, text: str) -> Problem | None:
        """Returns the problem that a person means by ``text``; None if it is none of this environment's."""
