"""Verifier of mathematical answers, in LaTeX or plain text, by what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.environments.verifiers.answers import bare, final_answer
from protocol.environments.verifiers.grade import Grade, right, wrong
from protocol.environments.verifiers.grading_client import GradingServers, check_installed
from protocol.environments.verifiers.sandbox import has_sandbox
from protocol.errors import Rejected

MAX_ANSWER = 2**11
"""Characters of an answer; a longer one is wrong."""


class MathVerifier:
    """Compares the final answer with the reference as expressions. Runs in a sandbox where there is one."""

    def __init__(self) -> None:
        self._servers = GradingServers("protocol.environments.verifiers.expressions", has_sandbox)

    def check_machine(self) -> None:
        """Checks that the library is installed. See `Verifier`."""
        check_installed("math_verify", "latex2sympy2_extended", "sympy")

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks that there is an answer. See `Verifier`."""
        if not 0 < len(reference(answer)) <= MAX_ANSWER:
            raise Rejected(f"invalid answer of {len(answer)} characters: expected 1 to {MAX_ANSWER}")

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Compares what both mean. See `Verifier`."""
        given = final_answer(completion)
        if not given:
            return wrong("there is no answer")
        if len(given) > MAX_ANSWER:
            return wrong("the answer is too long")
        expected = reference(answer)
        if "".join(given.split()) == "".join(expected.split()):
            return right()
        return self._servers.ask(expected, given)


def reference(answer: str) -> str:
    """Returns the reference without box and decoration."""
    return final_answer(answer) if "boxed" in answer else bare(answer)
