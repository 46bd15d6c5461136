"""Grades by libraries, in a process that may be killed: a child for each request, which ends at a limit of time.

    stdin       {"expected": …, "given": str}       a JSON line for each request
    stdout      {"ready": true}                     once, when everything is imported
                {"reward": 0..1, "why": str}        for each request

A child starts with all that its parent imported, and what it learns, allocates or breaks ends with it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 1.5
MEMORY = 2**30
"""Bytes that a child may take beyond what its parent has."""
_MOST_ADDRESSES = 2**46
_ANSWER_BYTES = 2**16
_DIE_WITH_PARENT = 1
_TOO_LONG = {"reward": 0.0, "why": "the answer takes too long to judge"}
_TOO_MUCH = {"reward": 0.0, "why": "the answer takes too much to judge"}

Judge = Callable[[Any, str], tuple[float, str]]


def main(module: str) -> None:
    """Serves the judge of ``module`` until its input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    results = os.dup(1)
    os.dup2(2, 1)
    judge: Judge = importlib.import_module(module).judge
    gc.collect()
    gc.freeze()
    most = addresses() + MEMORY
    _say(results, {"ready": True})
    for line in sys.stdin.buffer:
        _say(results, _in_child(judge, json.loads(line), most))


def addresses() -> int:
    """Returns how many bytes of addresses this process has, found by which limit leaves none to take."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, _MOST_ADDRESSES
    while high - low > 2**20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
            high = middle
        except (OSError, ValueError, MemoryError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
    return high


def _in_child(judge: Judge, request: dict[str, Any], most: int) -> dict[str, Any]:
    reading, writing = os.pipe()
    until = time.monotonic() + LIMIT_S
    child = os.fork()
    if child == 0:
        _judge_and_end(judge, request, most, writing)
    os.close(writing)
    try:
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        if not poll.poll((until - time.monotonic()) * 1000):
            return _TOO_LONG
        answer = os.read(reading, _ANSWER_BYTES)
        return json.loads(answer) if answer else _TOO_MUCH
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _judge_and_end(judge: Judge, request: dict[str, Any], most: int, writing: int) -> None:
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        cpu_s = int(LIMIT_S) + 1
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        try:
            reward, why = judge(request["expected"], request["given"])
            answer = {"reward": reward, "why": why}
        except Exception as error:
            answer = {"reward": 0.0, "why": f"the answer cannot be judged ({type(error).__name__})"}
        os.write(writing, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _say(results: int, answer: dict[str, Any]) -> None:
    os.write(results, json.dumps(answer).encode() + b"\n")
