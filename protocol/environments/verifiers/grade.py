"""A reward with its reason, and the interface of everything that gives one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Grade(NamedTuple):
    """Result of one verification.

    reward      from 0 (wrong) to 1 (right)
    why         one short sentence for people
    """

    reward: float
    why: str


def right(why: str = "the answer is right") -> Grade:
    """Gives full reward."""
    return Grade(1.0, why)


def wrong(why: str) -> Grade:
    """Gives no reward."""
    return Grade(0.0, why)


class Verifier(Protocol):
    """Grades completions of one kind of task. Safe to share among threads."""

    def check_machine(self) -> None:
        """Checks that this machine can grade.

        Raises:
            Misconfigured: something is missing; the message says how to mend it.
        """

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks that completions of a task with this reference can be graded.

        Raises:
            Rejected: they cannot.
        """

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Grades ``completion`` of a task that `check_task` accepts. Any text has a grade; blocks for seconds at most.

        Raises:
            Unavailable: the verifier itself cannot run.
        """
