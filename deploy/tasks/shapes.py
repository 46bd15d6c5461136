"""Shapes of the rows of datasets, recognised by their columns: from a row to a task, or to a reason to leave it out.

    own            question or prompt (text, or the messages of a chat), answer; verifier, info, split, held_out, weight
    verified       prompt, task_type, verification_info: SYNTHETIC-1, INTELLECT-2-RL-Dataset
    problems       problem, answer, question_type, problem_is_valid, solution_is_valid: NuminaMath-1.5
    worked         question, answer that ends in a line with #### and the result: GSM8K
    programs       text or prompt, code, test_list of assertions: MBPP

A row of a person's own is refused where it is wrong, since the person can mend it; one of a dataset is left out and
counted. PURE.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.environments.task_set import info_of
from protocol.environments.verifiers.programs import MAX_TESTS
from protocol.environments.verifiers.registry import verifier
from protocol.errors import AssizeError, Rejected
from protocol.wire.canonical import check_depth
from protocol.wire.tasks import MAX_WEIGHT

Record = Mapping[str, Any]

MAX_INFO = 1 << 20
"""Characters of the JSON of a task's info, such as the tests of a program."""
MAX_DEPTH, MAX_ASSERTION = 64, 10_000
"""Nesting of JSON, and characters of an assertion, above which a parser may run out of stack, and crash."""
WITHOUT_ANSWER = frozenset({"code", "reasoning-gym"})
"""Verifiers whose tasks need no answer, since ``info`` has all that they use."""
COLUMNS = frozenset(
    {
        *("question", "prompt", "answer", "verifier", "info", "split", "held_out", "weight"),
        *("problem", "question_type", "problem_is_valid", "solution_is_valid"),
        *("task_type", "verification_info"),
        *("text", "code", "test_list", "test_setup_code", "test_imports"),
    }
)
"""Columns that some shape reads; others, such as the answers of other models, need not be."""

_RATE = re.compile(r"(?:solve|pass)_rate")
_RESULT = re.compile(r"####\s*(\S[^\n]*)\s*$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PARTS = [
    re.compile(rf"(?:^|[^\w)])\({first}\).*[^\w)]\({second}\)|^\W*{first}\).*[\s;,]{second}\)", re.DOTALL)
    for first, second in (("1", "2"), ("a", "b"), ("A", "B"), ("i", "ii"), ("I", "II"))
]
_SCALAR = re.compile(
    r"""b?'(?:[^'\\\n]|\\.)*'|b?"(?:[^"\\\n]|\\.)*"|-?\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\b(?:True|False|None)\b""",
    re.DOTALL,
)
_COLLECTIONS, _ADJOINING = re.compile(r"[0\s\[\]{}(),:]*"), re.compile(r"[0\])}]\s*[\[({]")
_TEXT_STYLE = re.compile(r"\\(?:text|mathrm|textbf)\s*\{\s*([^{}]*?)\s*\}")
_SPLITS = {"train": False, "training": False} | dict.fromkeys(
    ("test", "validation", "valid", "val", "dev", "eval", "held_out", "held-out"), True
)
_MATH_TYPES, _CODE_TYPES = {"verifiable_math", "", None}, {"verifiable_code", "prime_rl_code", "", None}
_NO_RESULT = {"", "proof", "notfound", "not found", "none", "n/a"}
_PYTHON = {"python", "python3", "py", "", None}


@dataclass(frozen=True, slots=True)
class RawTask:
    """A task in words.

    messages     the chat that a completion answers, as (role, text); the last one is a user's
    held_out     the side that its dataset puts it on; None leaves that to its hash
    procedural   whether a program made it, so that one much like another is another all the same
    """

    messages: tuple[tuple[str, str], ...]
    answer: str
    verifier: str
    info: str = "{}"
    held_out: bool | None = None
    weight: int = 1
    procedural: bool = False

    @property
    def text(self) -> str:
        """The messages without their roles."""
        return "\n\n".join(text for _, text in self.messages)


class Unfit(Exception):
    """A row of a dataset that makes no task; ``str(error)`` is the reason, in a few words."""


def task_of(row: Record) -> RawTask:
    """Returns the task of a row.

    Raises:
        Unfit: it is a dataset's, and is left out.
        Rejected: it has no shape that is known, or it is of a person's own, and wrong.
    """
    for recognises, read in _SHAPES:
        if recognises(row):
            if read is _own:
                return _checked(read(row))
            try:
                return _checked(replace(read(row), held_out=_said_split(row), weight=_said_weight(row)))
            except AssizeError as error:
                raise Unfit("its verifier refuses it") from error
    raise Rejected(f"expected question and answer, or the columns of a known dataset, not {', '.join(row)[:100]}")


def procedural_task(dataset: str, entry: Record) -> RawTask:
    """Returns the task of an entry of a dataset of Reasoning Gym; raises ``Rejected`` if it cannot be judged."""
    info = _json_of({"dataset": dataset, "entry": dict(entry)})
    question, answer = _user(entry.get("question")), entry.get("answer")
    return _checked(RawTask(question, answer or "", "reasoning-gym", info, procedural=True))


def solve_rate(row: Record) -> float | None:
    """Returns the share of attempts that solved a row, of the first of such columns by name; None if it has none."""
    rates = (row[name] for name in sorted(row) if _RATE.search(name))
    return next((float(rate) for rate in rates if isinstance(rate, int | float)), None)


def reads(column: str) -> bool:
    """Tells whether a shape reads a column."""
    return column in COLUMNS or bool(_RATE.search(column))


def value_of(text: str) -> Any:
    """Returns the value of JSON; raises ``ValueError`` for other text, and for JSON nested too deeply."""
    try:
        check_depth(text.encode(errors="replace"), MAX_DEPTH)
        return json.loads(text)
    except (Rejected, RecursionError) as error:
        raise ValueError("the JSON is nested too deeply") from error


def _checked(task: RawTask) -> RawTask:
    """Returns ``task``; raises ``AssizeError`` unless its verifier can judge answers to it."""
    if len(task.info) > MAX_INFO:
        raise Rejected(f"expected info of at most {MAX_INFO} characters, not {len(task.info)}")
    verifier(task.verifier).check_task(task.answer, info_of(task.info))
    return task


# A person's own.


def _own(row: Record) -> RawTask:
    name = row.get("verifier") or "exact"
    if not isinstance(name, str):
        raise Rejected(f"expected verifier as text, not {name!r}")
    verifier(name)
    answer = _own_answer(row, name)
    info = row.get("info") or {}
    if isinstance(info, str):
        info = info_of(info)
    if not isinstance(info, Mapping):
        raise Rejected(f"expected info as an object, not {str(info)[:60]!r}")
    weight = row.get("weight")
    if weight is not None and not _is_weight(weight):
        raise Rejected(f"expected a weight from 0 to {MAX_WEIGHT}, not {weight!r}")
    question = row.get("question") or row.get("prompt")
    kept = {key: value for key, value in info.items() if value is not None}
    return RawTask(_messages(question), answer, name, _json_of(kept), _own_split(row), _said_weight(row))


def _own_answer(row: Record, name: str) -> str:
    answer = row.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)
    if answer is None and name in WITHOUT_ANSWER:
        return ""
    if not isinstance(answer, str) or not (answer.strip() or name in WITHOUT_ANSWER):
        raise Rejected("expected an answer")
    return _plain(answer, "an answer")


def _own_split(row: Record) -> bool | None:
    held_out, split = row.get("held_out"), row.get("split")
    if held_out is not None:
        if held_out not in (0, 1):
            raise Rejected(f"expected held_out true or false, not {held_out!r}")
        return bool(held_out)
    if split is None:
        return None
    if not isinstance(split, str) or split.lower() not in _SPLITS:
        raise Rejected(f"expected split train, validation, test or held_out, not {split!r}")
    return _SPLITS[split.lower()]


def _messages(question: object) -> tuple[tuple[str, str], ...]:
    """Returns a chat given as text or as messages."""
    if isinstance(question, str):
        return _user(question)
    if not isinstance(question, Sequence) or not question:
        raise Rejected("expected a question")
    messages = []
    for message in question:
        role, text = (message.get(key) for key in ("role", "content")) if isinstance(message, Mapping) else ("", "")
        if role not in ("system", "user", "assistant") or not isinstance(text, str):
            raise Rejected("expected messages with role system, user or assistant, and content as text")
        messages.append((str(role), _plain(text, "a message")))
    if messages[-1][0] != "user":
        raise Rejected("expected a last message of the user")
    if not messages[-1][1].strip():
        raise Rejected("expected a question")
    return tuple(messages)


# Known datasets.


def _problems(row: Record) -> RawTask:
    if str(row.get("question_type") or "").lower() == "proof":
        raise Unfit("a proof")
    for column in ("problem_is_valid", "solution_is_valid"):
        if column in row and row[column] is not True and str(row[column]).lower() not in ("yes", "true"):
            raise Unfit("marked invalid")
    question, answer = _question(row.get("problem")), _answer(row.get("answer"))
    if answer.lower() == "proof":
        raise Unfit("a proof")
    if any(part.search(_TEXT_STYLE.sub(r"\1", answer)) for part in _PARTS):
        raise Unfit("an answer in parts")
    choice = str(row.get("question_type") or "").upper() == "MCQ"
    return RawTask(question, answer, "choice" if choice else "math")


def _verified(row: Record) -> RawTask:
    kind, given = row.get("task_type"), row.get("verification_info")
    if kind not in _MATH_TYPES | _CODE_TYPES:
        raise Unfit("another type of task")
    question, facts = _question(row.get("prompt")), _facts(given)
    if facts.get("test_cases") and kind in _CODE_TYPES:
        if str(facts.get("language") or "").lower() not in _PYTHON:
            raise Unfit("another language than Python")
        owner = "Solution()." if "class Solution" in question[-1][1] else ""
        return RawTask(question, "", "code", _json_of(_tests(facts, owner)))
    if kind in _MATH_TYPES:
        return RawTask(question, _answer(facts.get("ground_truth")), "math")
    raise Unfit("no tests that can be used")


def _worked(row: Record) -> RawTask:
    found = _RESULT.search(row["answer"])
    result = _THOUSANDS.sub("", found[1].strip()) if found else ""
    return RawTask(_question(row["question"]), _answer(result), "math")


def _programs(row: Record) -> RawTask:
    question = _question(row.get("text") or row.get("prompt"))[0][1]
    tests = row["test_list"]
    if not isinstance(tests, Sequence) or isinstance(tests, str) or not tests:
        raise Unfit("no tests that can be used")
    calls = [_call_of(test) for test in tests[:MAX_TESTS]]
    setup, imports = row.get("test_setup_code"), row.get("test_imports")
    parts = [setup] if isinstance(setup, str) else imports if isinstance(imports, list) else []
    info = {"calls": calls, "setup": "\n".join(part for part in parts if isinstance(part, str))}
    signature = _signature(row.get("code"), calls[0]["call"])
    return RawTask(_user(f"{question}\n\nDefine it as `{signature}`."), "", "code", _json_of(info))


_SHAPES: tuple[tuple[Callable[[Record], bool], Callable[[Record], RawTask]], ...] = (
    (lambda row: bool(row.get("verifier")) and bool(row.get("question") or row.get("prompt")), _own),
    (lambda row: "verification_info" in row and "prompt" in row, _verified),
    (lambda row: "problem" in row and "answer" in row, _problems),
    (lambda row: "test_list" in row and ("text" in row or "prompt" in row), _programs),
    (lambda row: "question" in row and bool(_RESULT.search(str(row.get("answer")))), _worked),
    (lambda row: "question" in row or "prompt" in row, _own),
)


def _said_split(row: Record) -> bool | None:
    return _SPLITS.get(str(row.get("split")).lower())


def _said_weight(row: Record) -> int:
    weight = row.get("weight")
    return int(weight) if weight is not None and _is_weight(weight) else 1


def _is_weight(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WEIGHT


def _question(value: object) -> tuple[tuple[str, str], ...]:
    try:
        messages = _messages(value)
    except Rejected as error:
        raise Unfit("no question") from error
    return (*messages[:-1], ("user", messages[-1][1].strip()))


def _answer(value: object) -> str:
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if text.lower() in _NO_RESULT - {"proof"}:
        raise Unfit("no answer")
    try:
        return _plain(text, "an answer")
    except Rejected as error:
        raise Unfit("no answer") from error


def _facts(given: object) -> Mapping[str, Any]:
    """Returns a dataset's facts for verification: an object, as such or as text in JSON or in Python."""
    if isinstance(given, str):
        given = _parsed(given)
    if not isinstance(given, Mapping):
        raise Unfit("no facts to verify by")
    return given


def _parsed(text: str) -> object:
    """Returns the value of JSON or of a literal of Python; None for other text."""
    try:
        return value_of(text)
    except ValueError:
        rest = _SCALAR.sub("0", text)
        if not _COLLECTIONS.fullmatch(rest) or _ADJOINING.search(rest):
            return None  # the parser may crash on what is nested by operators
        try:
            check_depth(rest.encode(), MAX_DEPTH)
            return ast.literal_eval(text)
        except (Rejected, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None


def _tests(facts: Mapping[str, Any], owner: str) -> dict[str, object]:
    """Returns the info of a program's tests, given as a list of cases or as parallel lists."""
    cases = facts["test_cases"]
    if isinstance(cases, str):
        cases = _parsed(cases)
    if isinstance(cases, Mapping):
        inputs, outputs = cases.get("inputs"), cases.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise Unfit("no tests that can be used")
        name = cases.get("fn_name") or facts.get("fn_name")
        cases = [{"fn_name": name, "input": given, "output": due} for given, due in zip(inputs, outputs, strict=True)]
    if not isinstance(cases, list) or not cases or not all(isinstance(case, Mapping) for case in cases):
        raise Unfit("no tests that can be used")
    cases = cases[:MAX_TESTS]
    names = {case.get("fn_name") or "" for case in cases}
    if names == {""}:
        return {"tests": [{key: _lines(case.get(key)) for key in ("input", "output")} for case in cases]}
    name = names.pop()
    if names or not isinstance(name, str) or not name.isidentifier():
        raise Unfit("no tests that can be used")
    due = [case.get("output") for case in cases]
    if all(isinstance(value, list) and len(value) == 1 for value in due):  # results that were put into lists
        due = [value[0] for value in due]
    calls = [
        {"call": f"{owner}{name}({_arguments(case.get('input'))})", "result": repr(value)}
        for case, value in zip(cases, due, strict=True)
    ]
    return {"calls": calls}


def _lines(value: object) -> str:
    """Returns the text of a program's input or output, which some tests have as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise Unfit("no tests that can be used")
    return value


def _arguments(given: object) -> str:
    """Returns the arguments of a call, given as a list, or as text with a value in JSON on each line."""
    if isinstance(given, str):
        try:
            given = [value_of(line) for line in given.splitlines()]
        except ValueError as error:
            raise Unfit("no tests that can be used") from error
    if not isinstance(given, list):
        raise Unfit("no tests that can be used")
    return ", ".join(map(repr, given))


def _call_of(test: object) -> dict[str, str]:
    """Returns the call of an assertion, and the result that it expects."""
    if not isinstance(test, str) or len(test) > MAX_ASSERTION:
        raise Unfit("no tests that can be used")
    try:
        statement, *others = ast.parse(test.strip()).body
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise Unfit("no tests that can be used") from error
    if isinstance(statement, ast.Assert) and not others:
        match statement.test:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
                for call, result in ((left, right), (right, left)):
                    if isinstance(call, ast.Call) and (literal := _literal(result)) is not None:
                        return {"call": ast.unparse(call), "result": literal}
            case ast.Call() as call:
                return {"call": ast.unparse(call), "result": "True"}
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
                return {"call": ast.unparse(call), "result": "False"}
    raise Unfit("no tests that can be used")


def _literal(node: ast.expr) -> str | None:
    try:
        ast.literal_eval(node)
        return ast.unparse(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _signature(code: object, call: str) -> str:
    """Returns the head of the function that is asked for: of the solution, or else its name alone."""
    name = call.partition("(")[0]
    if isinstance(code, str) and (head := re.search(rf"^def\s+({re.escape(name)}\s*\([^()\n]*\))", code, re.MULTILINE)):
        return head[1]
    return name


def _user(text: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(text, str) or not text.strip():
        raise Rejected("expected a question")
    return (("user", _plain(text, "a question")),)


def _plain(text: str, what: str) -> str:
    """Returns ``text``; raises ``Rejected`` for half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(f"expected {what} in Unicode") from error
    return text


def _json_of(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise Rejected("expected info that is JSON") from error
