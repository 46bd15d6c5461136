"""Programs graded in the sandbox: right, wrong and hostile ones."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.environments.verifiers import syscalls
from protocol.environments.verifiers.driver import encoded
from protocol.environments.verifiers.programs import CodeVerifier, program_in, same_value
from protocol.environments.verifiers.sandbox import has_sandbox
from protocol.errors import Rejected
from tests.conftest import ROOT
from tests.environments.hostile_programs import HONEST, HOSTILE, TASK
from tests.environments.mbpp_like import TASKS

pytestmark = pytest.mark.skipif(not has_sandbox(), reason="bubblewrap does not work here")

CODE = CodeVerifier()
HASTY = CodeVerifier(cpu_s=1, wall_s=1.5)


def reward(program: str, info: Mapping[str, Any] = TASK, verifier: CodeVerifier = CODE) -> float:
    return verifier.grade(f"Here it is:\n```python\n{program}\n```", "", info).reward


def value(program: str, call: str, result: str) -> float:
    return reward(program, {"calls": [{"call": call, "result": result}]})


def test_right_programs_get_all_and_wrong_ones_nothing_three_times_over() -> None:
    assert len(TASKS) == len({task.question for task in TASKS}) == 100
    with ThreadPoolExecutor(2) as threads:
        for tasks in (TASKS, TASKS[::4], TASKS[::4]):
            programs = [(program, task.info) for task in tasks for program in (task.right, task.wrong)]
            assert list(threads.map(lambda item: reward(*item), programs)) == [1.0, 0.0] * len(tasks)


def test_hostile_programs_get_nothing_in_bounded_time() -> None:
    def graded(program: str) -> tuple[float, float]:
        start = time.perf_counter()
        return reward(program, verifier=HASTY), time.perf_counter() - start

    assert len(HOSTILE) == len(set(HOSTILE.values())) == 40
    with ThreadPoolExecutor(2) as threads:
        grades = dict(zip(HOSTILE, threads.map(graded, HOSTILE.values()), strict=True))
    assert {name: grade for name, grade in grades.items() if grade[0] or grade[1] > 4} == {}
    assert reward(HONEST) == 1


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()",
        "libc('fork')",
        "libc('vfork')",
        "libc('unshare', 0x10000000)",
        "libc('ptrace', 16, 1, 0, 0)",
        "libc('shmget', 0, 4096, 0o1600)",
        "libc('syscall', 435, 0, 0)",
        "socket.socket()",
        "os.listdir('/proc')",
        "open('/etc/passwd')",
        "open('/new', 'w')",
        "open(os.__file__, 'a')",
        "bytearray(2**30)",
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))",
        "os.environ['PATH']",
    ],
)
def test_what_is_forbidden_fails(attempt: str) -> None:
    program = f"""
import ctypes, os, resource, socket
def libc(name, *args):
    if getattr(ctypes.CDLL(None), name)(*args) < 0:
        raise OSError
try:
    {attempt}
except (OSError, MemoryError, ValueError, KeyError):
    n = int(input())
    print(n * n + 7)
"""
    assert reward(program) == 1


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nn = int(sys.stdin.read())\nsys.stdout.write(f'{n * n + 7}')\nsys.exit(1)",
        "import os\nn = int(open(0).read())\nos.write(1, str(n * n + 7).encode())",
        "import sys\nn = int(sys.stdin.buffer.readline())\nsys.stdout.buffer.write(b'%d  \\n\\n' % (n * n + 7))",
        "import threading\nthreading.Thread(target=lambda: print(int(input()) ** 2 + 7)).start()",
        "import asyncio\nasync def main():\n    n = int(input())\n    print(n * n + 7)\nasyncio.run(main())",
        "import atexit\nn = int(input())\natexit.register(lambda: print(n * n + 7))",
        "def main():\n    n = int(input())\n    print(n * n + 7)\nif __name__ == '__main__':\n    main()",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    n: int\np = P(int(input()))\nprint(p.n ** 2 + 7)",
    ],
)
def test_programs_may_read_and_print_in_their_own_way(program: str) -> None:
    assert reward(program) == 1


def test_results_are_compared_as_literals_with_types() -> None:
    assert value("f = lambda: 0.1 + 0.2", "f()", "0.3") == 1
    assert value("f = lambda: (1, 2)", "f()", "(1, 2)") == 1
    assert value("f = lambda: [1, 2]", "f()", "(1, 2)") == 0
    assert value("f = lambda: 1", "f()", "True") == 0
    assert value("f = lambda: {3, 1, 2}", "f()", "{1, 2, 3}") == 1
    assert value("f = lambda: {'b': [1.0], 'a': None}", "f()", "{'a': None, 'b': [1]}") == 1
    assert value("from collections import Counter\nf = lambda: Counter('aab')", "f()", "{'a': 2, 'b': 1}") == 1
    assert value("f = lambda: float('nan')", "f()", "0.0") == 0
    assert value("class A(int):\n    __eq__ = lambda a, b: True\nf = lambda: A(5)", "f()", "6") == 0
    assert value("class A:\n    __repr__ = lambda a: '6'\nf = lambda: A()", "f()", "6") == 0
    assert value("f = lambda x=[]: x.append(x) or x", "f()", "[]") == 0


def test_a_setup_comes_before_the_program() -> None:
    info = {
        "calls": [{"call": "f(P(2))", "result": "4"}],
        "setup": "class P:\n    def __init__(self, n):\n        self.n = n",
    }
    assert reward("def f(p: P) -> int:\n    return p.n * 2", info) == 1


def test_the_last_program_marked_as_python_counts() -> None:
    assert program_in("```python\na\n```\n```py\nb\n```\n```\nout\n```") == "b\n"
    assert program_in("```\na\n```\nthen\n```\nb\n```") == "b\n"
    assert program_in("<think>```python\na\n```</think>\n```python\nb") == "b"
    assert program_in("print(1)") == "print(1)"
    assert program_in("<think>print(1)") == ""


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"tests": []},
        {"tests": [{"input": "1"}]},
        {"tests": [{"input": "1", "output": 2}]},
        {"calls": [{"call": "f()", "result": "f()"}]},
        {"calls": [{"call": "f()", "result": "1"}], "tests": [{"input": "", "output": ""}]},
        {"calls": [{"call": "f()", "result": "1"}], "setup": 3},
        {"tests": [{"input": "", "output": ""}] * 201},
    ],
)
def test_tasks_with_unusable_tests_are_refused(info: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="invalid"):
        CODE.check_task("", info)


@settings(max_examples=30, deadline=None)
@given(st.text())
def test_any_text_has_a_grade(text: str) -> None:
    assert CODE.grade(text, "", TASK).reward == 0


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(LITERALS, LITERALS)
def test_a_value_is_the_same_as_itself_and_as_its_equals(left: object, right: object) -> None:
    assert same_value(encoded(left), encoded(left))
    if same_value(encoded(left), encoded(right)):
        assert left == right or any(isinstance(part, float) for part in flat(left) + flat(right))


def flat(item: object) -> list[object]:
    if isinstance(item, dict):
        return [part for pair in item.items() for part in flat(list(pair))]
    return [part for inner in item for part in flat(inner)] if isinstance(item, list | tuple) else [item]


def test_the_filter_of_system_calls_jumps_within_itself() -> None:
    for machine in ("x86_64", "aarch64"):
        rules = syscalls.threads_only(machine)
        assert rules is not None
        steps = [rules[at : at + 8] for at in range(0, len(rules), 8)]
        assert all(at + 1 + max(step[2], step[3]) < len(steps) for at, step in enumerate(steps[:-1]))
    assert syscalls.threads_only("riscv64") is None


def test_what_a_program_nests_deeper_than_a_parser_goes_ends_its_own_reward_alone() -> None:
    """Packages of the chain raise Python's limit of recursion so far that a parser would crash first."""
    script = (
        "import sys; sys.setrecursionlimit(100_000)\n"
        "from protocol.environments.verifiers.registry import verifier\n"
        "program = 'import os\\nfor fd in range(1, 32):\\n    try:\\n'"
        "'        os.write(fd, b\\'{\"value\":\\' + b\\'[\\' * 400_000)\\n    except OSError:\\n        pass'\n"
        "info = {'calls': [{'call': 'f()', 'result': '1'}]}\n"
        "print(verifier('code').grade(program, '', info).reward)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr
