"""What a task is and what an answer to it is worth.

An environment turns a 32-byte seed into a problem, and a problem with a completion into a reward. Workers, validators
and the trainer all derive both from the same seed and the same text, so everything here is pure, exact and free of
torch: the same bytes in give the same prompt and the same reward on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Problem:
    """One task.

    ``prompt`` is what the policy is given, ``answer`` what a right completion arrives at, ``held_out`` whether the
    problem belongs to the part kept for measuring: such problems are never given out to be trained on.
    """

    prompt: str
    answer: str
    held_out: bool


@runtime_checkable
class Environment(Protocol):
    """A family of problems under fixed parameters."""

    @property
    def name(self) -> str:
        """The name by which a run asks for it."""
        ...

    @property
    def alphabet(self) -> str:
        """Every character that its prompts and right completions use, sorted; empty where any text may occur."""
        ...

    def problem(self, seed: bytes) -> Problem:
        """Derive the training problem of a 32-byte ``seed``, never a held-out one; else ``ValueError``."""
        ...

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        """Derive ``count`` distinct held-out problems; ``ValueError`` where there are not that many."""
        ...

    def reward(self, problem: Problem, completion: str) -> float:
        """Say what ``completion`` (without prompt and end-of-text) is worth, in [0, 1]. Any text has a reward."""
        ...

    def with_answer(self, completion: str, answer: str) -> str | None:
        """Write ``answer`` over the final answer, in as many characters; ``None`` where there is none."""
        ...
