"""Verifiers that compare text: the answer itself, or the letter of a choice."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from protocol.environments.verifiers.answers import final_answer, letter
from protocol.environments.verifiers.grade import Grade, right, wrong
from protocol.errors import Rejected


class ExactVerifier:
    """Accepts the reference answer alone, whatever its white space and its compatible forms of characters."""

    def check_machine(self) -> None:
        """Needs nothing."""

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks that there is an answer. See `Verifier`."""
        if not _normal(answer):
            raise Rejected(f"invalid answer {answer!r}: expected text")

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Compares the final answer with the reference. See `Verifier`."""
        given = final_answer(completion)
        if not given:
            return wrong("there is no answer")
        if _normal(given) in (_normal(answer), _normal(final_answer(answer))):
            return right()
        return wrong("the answer is another")


class ChoiceVerifier:
    """Accepts the letter of the right choice, A to J."""

    def check_machine(self) -> None:
        """Needs nothing."""

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks that the reference is a letter. See `Verifier`."""
        if letter(answer) is None:
            raise Rejected(f"invalid answer {answer!r}: expected a letter from A to J")

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Compares the letter that is chosen with the reference. See `Verifier`."""
        chosen = letter(final_answer(completion))
        if chosen is None:
            return wrong("no choice is named")
        return right() if chosen == letter(answer) else wrong(f"the choice is {chosen}")


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
