"""A verifier of answers that only this file knows judges tasks from a file like the product's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from protocol.environments.environment import check_machine
from protocol.environments.task_set import TaskSet
from protocol.environments.verifiers.grade import Grade
from protocol.environments.verifiers.registry import VERIFIERS
from protocol.errors import Misconfigured, Rejected
from protocol.wire.tasks import TaskHeader, TaskRow, TaskSource, encode_tasks

TASKS = encode_tasks(TaskHeader(bytes(32), (TaskSource("own", 1),)), [TaskRow((1,), "abc", "letters", '{"least":2}')])


class LettersVerifier:
    """Rewards the share of the answer's letters that a completion has, if they are enough."""

    def check_machine(self) -> None:
        """Needs nothing."""

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        if not isinstance(info.get("least"), int):
            raise Rejected("invalid 'least': expected a number of letters")

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        found = sum(letter in completion for letter in answer)
        return Grade(found / len(answer) if found >= info["least"] else 0.0, f"{found} letters")


def test_it_judges_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = TaskSet.of_file(TASKS)
    with pytest.raises(Misconfigured, match="unknown verifier 'letters'"):
        check_machine(tasks)
    monkeypatch.setitem(VERIFIERS, "letters", LettersVerifier())
    check_machine(tasks)
    problem = tasks.problem(bytes(32))
    assert tasks.reward(problem, "a cab") == 1.0
    assert tasks.grade(problem, "b") == Grade(0.0, "1 letters")
