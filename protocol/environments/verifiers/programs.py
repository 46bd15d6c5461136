"""Verifier of Python programs: each runs in a sandbox of its own, and what comes out is compared out here.

A task has programs that read and print, ``{"tests": [{"input": str, "output": str}, …]}``, or functions that are
called, ``{"calls": [{"call": "f(1, 2)", "result": "3"}, …], "setup": str}``, where a result is a literal of Python.
All tests pass, or the reward is 0. White space at the end of lines and of the output does not count; floats may differ
by ``TOLERANCE``, and a tuple is no list.
"""

from __future__ import annotations

import ast
import json
import math
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.environments.verifiers import driver
from protocol.environments.verifiers.answers import after_thought
from protocol.environments.verifiers.grade import Grade, right, wrong
from protocol.environments.verifiers.sandbox import PYTHON, check_sandbox, end, in_memory, sandboxed
from protocol.environments.verifiers.syscalls import threads_only
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire.canonical import check_depth

MAX_PROGRAM = 2**16
MAX_TESTS = 200
MAX_DEPTH = 200
"""Deepest nesting of what comes out: a parser may run out of stack on deeper values, and crash."""
MAX_RESULT = 10_000
"""Characters of an expected result."""
MAX_OUTPUT = 2**20
"""Bytes read of all that a program answers; it ends when there are more."""
MEMORY = 512 * 2**20
TOLERANCE = 1e-9
_FILE, _FILES = 4 * 2**20, 32
"""Largest file, and most open ones: bounds memory in files that have no name."""
_LEAVE_S = 0.1
"""Time that a driver without more to say has to leave by itself."""
_LABELS = {"python", "py", "python3"}
_DRIVER = Path("/driver.py")


@dataclass(frozen=True, slots=True)
class CodeVerifier:
    """Runs the program that a completion ends in. ``cpu_s`` and ``wall_s`` limit all its tests together."""

    cpu_s: int = 5
    wall_s: float = 10.0

    def check_machine(self) -> None:
        """Checks that there is a sandbox. See `Verifier`."""
        check_sandbox()

    def check_task(self, answer: str, info: Mapping[str, Any]) -> None:
        """Checks the tests' form; the answer is not used. See `Verifier`."""
        _tests(info)

    def grade(self, completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        """Runs the program in every test. See `Verifier`."""
        try:
            check_sandbox()
        except Misconfigured as error:
            raise Unavailable(str(error)) from error
        program = program_in(completion)
        if not program.strip():
            return wrong("there is no program")
        if len(program.encode(errors="replace")) > MAX_PROGRAM:
            return wrong("the program is too long")
        asked, passes = _tests(info)
        task = {"program": program, "setup": info.get("setup") or "", **asked}
        answers = _lines(self._run(task))
        for number, passed in enumerate(passes, 1):
            line = next(answers, {"error": "nothing"})
            if not _holds(passed, line):
                reason = line.get("error")
                failure = f"ends in {str(reason)[:60]}" if reason else "fails"
                return wrong(f"test {number} of {len(passes)} {failure}")
        return right(f"all {len(passes)} tests pass")

    def _run(self, task: Mapping[str, Any]) -> bytes:
        """Runs the driver in a sandbox; returns what it writes until it ends, writes too much or takes too long."""
        rules = threads_only()
        limits = {"memory": MEMORY, "cpu_s": self.cpu_s, "file": _FILE, "files": _FILES}
        limits["processes"] = None if rules else 8  # type: ignore[assignment]
        given = in_memory(json.dumps({**task, **limits}).encode(), "task")
        filtered_by = in_memory(rules, "rules") if rules else None
        try:
            process = subprocess.Popen(
                [*sandboxed([(Path(driver.__file__), _DRIVER)], filtered_by), *PYTHON, str(_DRIVER)],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=() if filtered_by is None else (filtered_by,),
            )
        except OSError as error:
            raise Unavailable(f"cannot start a sandbox: {error.strerror}") from error
        finally:
            os.close(given)
            if filtered_by is not None:
                os.close(filtered_by)
        try:
            assert process.stdout is not None
            return _read(process.stdout.fileno(), time.monotonic() + self.wall_s)
        finally:
            end(process, _LEAVE_S)


def program_in(completion: str) -> str:
    """Returns the last fenced program, of those marked as Python if some are; without fences, all of the text."""
    text = after_thought(completion)
    program = last_fence(text, _LABELS)
    if program is None:
        program = last_fence(text, {""})
    return text if program is None else program


def last_fence(text: str, labels: Set[str] | None = None) -> str | None:
    """Returns what the last fence encloses of those with one of ``labels``, else of all; None if there is none.

    A fence that the text ends in need not be closed.
    """
    found: str | None = None
    label: str | None = None
    begin = end = 0
    for line in text.splitlines(keepends=True):
        fence = line.strip()
        if label is None and fence.startswith("```"):
            label, begin = fence[3:].strip().lower(), end + len(line)
        elif label is not None and fence == "```":
            if labels is None or label in labels:
                found = text[begin:end]
            label = None
        end += len(line)
    if label is not None and found is None and (labels is None or label in labels):
        return text[begin:]
    return found


def same_value(expected: Any, given: Any) -> bool:
    """Compares two values as `driver.encoded` writes them; floats may differ by ``TOLERANCE``, relatively."""
    if isinstance(expected, bool | str | None) or isinstance(given, bool | str | None):
        return type(expected) is type(given) and bool(expected == given)
    if isinstance(expected, int | float) and isinstance(given, int | float):
        return _same_number(expected, given)
    if isinstance(expected, list) and isinstance(given, list):
        return len(expected) == len(given) and all(map(same_value, expected, given))
    if not isinstance(expected, dict) or not isinstance(given, dict) or expected.keys() != given.keys():
        return False
    kind, items = next(iter(expected.items()))
    others = given[kind]
    if kind in ("set", "dict"):
        return isinstance(others, list) and _same_in_any_order(items, others)
    return same_value(items, others)


def same_output(expected: str, given: str) -> bool:
    """Compares two outputs but for white space at the end of lines and of the whole."""
    left, right_ = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (expected, given))
    return left == right_


def _same_number(expected: float, given: float) -> bool:
    if isinstance(expected, int) and isinstance(given, int):
        return expected == given
    try:
        return math.isclose(expected, given, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2)
    except OverflowError:
        return False


def _same_in_any_order(expected: Sequence[Any], given: Sequence[Any]) -> bool:
    """Compares without regard to order: by text at once, one by one where floats may differ."""
    if len(expected) != len(given):
        return False
    in_order = [sorted(items, key=lambda item: json.dumps(item, sort_keys=True)) for items in (expected, given)]
    return all(map(same_value, *in_order))


def _tests(info: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[Callable[[dict[str, Any]], bool]]]:
    """Splits a task's tests into the part that the program may see, and the checks of what it answers."""
    kinds = [kind for kind in ("tests", "calls") if info.get(kind)]
    if len(kinds) != 1 or not isinstance(info[kinds[0]], list) or len(info[kinds[0]]) > MAX_TESTS:
        raise Rejected(f"invalid tests of a program: expected 1 to {MAX_TESTS} 'tests' or 'calls'")
    if not isinstance(info.get("setup") or "", str):
        raise Rejected("invalid 'setup' of a program: expected text")
    asking, answering, name = {
        "tests": ("input", "output", "inputs"),
        "calls": ("call", "result", "calls"),
    }[kinds[0]]
    asked, passes = [], []
    for test in info[kinds[0]]:
        if not isinstance(test, Mapping) or not all(isinstance(test.get(key), str) for key in (asking, answering)):
            raise Rejected(
                f"invalid test {str(test)[:60]!r} of a program: expected text as {asking!r} and {answering!r}"
            )
        asked.append(test[asking])
        passes.append(_prints(test[answering]) if kinds[0] == "tests" else _returns(test[answering]))
    return {name: asked}, passes


def _holds(passed: Callable[[dict[str, Any]], bool], line: dict[str, Any]) -> bool:
    try:
        return passed(line)
    except RecursionError:  # of a value that is nested deeper than any expected one
        return False


def _prints(output: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: isinstance(line.get("output"), str) and same_output(output, line["output"])


def _returns(result: str) -> Callable[[dict[str, Any]], bool]:
    if len(result) > MAX_RESULT:  # the parser goes as deep as the text says
        raise Rejected(f"invalid result of {len(result)} characters of a call: expected at most {MAX_RESULT}")
    try:
        expected = json.loads(json.dumps(driver.encoded(ast.literal_eval(result))))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise Rejected(f"invalid result {result[:60]!r} of a call: expected a literal of Python") from error
    return lambda line: "value" in line and same_value(expected, line["value"])


def _lines(output: bytes) -> Iterator[dict[str, Any]]:
    """Reads the driver's lines up to the first that is none."""
    for line in output.split(b"\n"):
        try:
            check_depth(line, MAX_DEPTH)
            read = json.loads(line)
        except (ValueError, Rejected):
            return
        if not isinstance(read, dict):
            return
        yield read


def _read(descriptor: int, until: float) -> bytes:
    """Reads to the end, at most ``MAX_OUTPUT`` bytes, no longer than ``until``."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    parts: list[bytes] = []
    size = 0
    while size < MAX_OUTPUT and (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
        part = os.read(descriptor, 2**16)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)
