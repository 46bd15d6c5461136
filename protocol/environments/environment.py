"""Tasks, and the rewards of answers to them.

An environment turns a 32-byte seed into a problem, and a problem with a completion into a reward. Workers, validators
and the trainer all derive the problem from the same seed, so that part is pure, exact and free of torch: the same bytes
in give the same prompt on every machine. Rewards are no part of a verdict: whoever trains or audits recomputes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from protocol.wire.rules import Rules

Prompt = str | tuple[int, ...]
"""Text, which the run's rules put into the model's words; or tokens, of which nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One task.

    prompt      given to the policy
    answer      result that a correct completion arrives at
    held_out    reserved for evaluation: such a problem is never set for training
    source      name of where it comes from, if the environment has several
    row         its place in a file of tasks
    target      length in tokens that the prompt asks for
    penalty     loss of reward for each token by which a completion misses ``target``
    """

    prompt: Prompt
    answer: str
    held_out: bool
    source: str = ""
    row: int | None = None
    target: int | None = None
    penalty: float = 0.0

    def total(self, reward: float, tokens: int) -> float:
        """Returns the reward that is trained on, of a completion of so many ``tokens`` whose task pays ``reward``."""
        return reward if self.target is None else reward - self.penalty * abs(self.target - tokens)


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
        """Returns the reward of ``completion`` (without prompt and end-of-text), in [0, 1]. Any text has one.

        Raises:
            Unavailable: what judges answers does not run.
        """

    def most_prompt_tokens(self, rules: Rules) -> int:
        """Returns a bound of the tokens of any prompt under a run's rules. A text has at most as many as bytes."""


@runtime_checkable
class TypedProblems(Protocol):
    """An environment that also understands problems as people type them."""

    def typed(self, text: str) -> Problem | None:
        """Returns the problem that a person means by ``text``; None if it is none of this environment's."""


@runtime_checkable
class VersionedTasks(Protocol):
    """An environment whose tasks come with the files of each version."""

    def at(self, directory: Path) -> Environment:
        """Returns the environment as the version in ``directory`` sets tasks.

        Raises:
            UnfitCheckpoint: its files are not those of the run.
        """


@runtime_checkable
class NeedsMachine(Protocol):
    """An environment whose rewards need more than this process, such as a sandbox."""

    def check_machine(self) -> None:
        """Raises ``Misconfigured`` if rewards cannot be computed on this machine."""


def at_version(environment: Environment, directory: Path) -> Environment:
    """Returns the environment as the version in ``directory`` sets tasks; most set them alike in every version.

    Raises:
        UnfitCheckpoint: the version's files are not those of the run.
    """
    return environment.at(directory) if isinstance(environment, VersionedTasks) else environment


def check_machine(environment: Environment) -> None:
    """Raises ``Misconfigured`` if rewards of the environment cannot be computed on this machine."""
    if isinstance(environment, NeedsMachine):
        environment.check_machine()
