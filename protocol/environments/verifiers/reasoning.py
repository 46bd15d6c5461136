"""Verifier of Reasoning Gym's tasks, by the scorers of their datasets.

A task is ``{"dataset": str, "entry": {"question", "answer", "metadata"}}``. Some scorers evaluate the answer as Python:
all run in a sandbox, and those get an answer only if it is made of what a right one can be made of. Otherwise it could
hand the scorer the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from protocol.environments.verifiers.answers import after_thought, final_answer
from protocol.environments.verifiers.grade import Grade, wrong
from protocol.environments.verifiers.grading_client import GradingServers, check_installed
from protocol.environments.verifiers.programs import last_fence
from protocol.environments.verifiers.sandbox import check_sandbox
from protocol.errors import Misconfigured, Rejected, Unavailable

MAX_ANSWER = 2**14
MAX_ENTRY = 2**20

_SUM = re.compile(r"(?:[\d\s+\-()]|(?<![*/])[*/](?![*/]))++", re.ASCII)
_FORMULA = re.compile(
    r"(?:[\s+\-*/()]|\d++(?:\.\d++)?"
    r"|(?<![A-Za-z\d])(?:a?(?:sin|cos|tan)h?|exp|log|ln|sqrt|pi|Abs|[a-zA-HJ-MPRT-Z])(?![A-Za-z\d.]))++",
    re.ASCII,
)
_NUMBERS = re.compile(r"[\[\]\d\s,.'\"\-]+", re.ASCII)
_ROWS = re.compile(r"[\[\]\d\s,\-]+", re.ASCII)
EVALUATED = {
    "binary_matrix": _ROWS,
    "countdown": _SUM,
    "intermediate_integration": _FORMULA,
    "n_queens": re.compile(r"[\[\],\s'\"Q_]+", re.ASCII),
    "polynomial_multiplication": _FORMULA,
    "simple_integration": _FORMULA,
    "spiral_matrix": _ROWS,
    "string_insertion": re.compile(r"[\[\],\s'\"A-Z]+", re.ASCII),
}
"""Datasets whose scorer evaluates the answer, and what an answer may consist of."""

REFUSED = {
    "bitwise_arithmetic": "its scorer evaluates the task",
    "codeio": "it is scored by code that its tasks bring",
    "coin_flip": "its scorer takes the first digit of the answer for all of it",
    "composite": "its scorer is that of another dataset",
    "game_of_life_halting": "its scorer takes any answer for the right one",
    "puzzle24": "its scorer takes other numbers than those that are set",
}
"""Datasets whose scores are no measure of the answer, or not safe to compute."""

_EVALUATED_METADATA = {"intermediate_integration": "integrand", "simple_integration": "integrand"}
_TAG, _END_TAG = "<answer>", "</answer>"
_NO_NUMBER = re.compile(r"(?<![^\W\d_])(?:nan|inf|infinity)(?![^\W\d_])", re.IGNORECASE)


class ReasoningVerifier:
    """Scores an answer as its dataset does, from 0 to 1."""

    def __init__(self) -> None:
        self._servers = GradingServers("protocol.environments.verifiers.reasoning_scores", _confined)

    def check_machine(self) -> None:
        """Checks that library and sandbox are there. See `Verifier`."""
        check_installed("reasoning_gym")
        check_sandbox()

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks dataset and entry; the answer is not used. See `Verifier`."""
        name, entry = info.get("dataset"), info.get("entry")
        if (
            not isinstance(name, str)
            or not isinstance(entry, Mapping)
            or not isinstance(entry.get("metadata"), Mapping)
        ):
            raise Rejected("invalid task of Reasoning Gym: expected 'dataset' and 'entry' with 'metadata'")
        if name in REFUSED:
            raise Rejected(f"invalid dataset {name!r} of Reasoning Gym: expected another, as {REFUSED[name]}")
        if len(str(entry)) > MAX_ENTRY:
            raise Rejected(f"invalid entry of {name!r}: expected at most {MAX_ENTRY} characters")
        if not isinstance(entry.get("answer"), str | None):
            raise Rejected(f"invalid answer of {name!r}: expected text")
        evaluated = entry["metadata"].get(_EVALUATED_METADATA.get(name, ""), "")
        if name in _EVALUATED_METADATA and not _FORMULA.fullmatch(str(evaluated)):
            raise Rejected(f"invalid integrand of {name!r}: expected a formula")
        if name == "number_sorting" and not _NUMBERS.fullmatch(str(entry.get("answer"))):
            raise Rejected(f"invalid answer of {name!r}: expected a list of numbers")
        if name == "polynomial_multiplication" and not _FORMULA.fullmatch(str(entry.get("answer"))):
            raise Rejected(f"invalid answer of {name!r}: expected a formula")

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Scores the answer that is tagged, else as much of the text as the right one would be. See `Verifier`."""
        try:
            check_sandbox()
        except Misconfigured as error:
            raise Unavailable(str(error)) from error
        name, entry = info["dataset"], info["entry"]
        expected = entry.get("answer") or ""
        given = given_answer(completion, expected)
        if not given:
            return wrong("there is no answer")
        if len(given) > MAX_ANSWER:
            return wrong("the answer is too long")
        if name in EVALUATED and not EVALUATED[name].fullmatch(given):
            return wrong("the answer has what no right one has")
        if _NO_NUMBER.search(given) and not _NO_NUMBER.search(expected):
            return wrong("the answer is no number")
        return self._servers.ask({"dataset": name, "entry": dict(entry)}, given)


def given_answer(completion: str, expected: str) -> str:
    """Returns what is between the last tags; else, if the right answer has lines, all of the text; else its end."""
    spoken = after_thought(completion)
    before, closed, _ = spoken.rpartition(_END_TAG)
    _, opened, tagged = before.rpartition(_TAG)
    if closed and opened:
        return tagged.strip()
    if "\n" in expected.strip():
        fenced = last_fence(spoken)
        return (spoken if fenced is None else fenced).strip("\n").rstrip()
    end = final_answer(spoken)
    return f"{end}." if expected.endswith(".") and spoken.rstrip().endswith(".") else end


def _confined() -> bool:
    check_sandbox()
    return True
