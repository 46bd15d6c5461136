"""Runs one program in its tests, alone in a sandbox; knows inputs and calls, never what should come out.

Run by its path, with nothing else of this package at hand:

    stdin       {"program", "setup", "calls" or "inputs": [str, …], "memory", "cpu_s", "file", "files", "processes"}
    stdout      a JSON line for each test: {"value": …}, {"output": str}, or {"error": str} and then no more

The program shares this process, and may forge each line. It gains nothing by that, since only the other side knows
the right ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from contextlib import suppress
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from typing import Any

_OUTPUT_BYTES = 2**20
_LEAST_HELD = 10


def encoded(value: object) -> Any:
    """Turns a value into JSON that tells types apart; a value of a subclass counts as one of its base.

    Lists are lists, and other collections, bytes and complex numbers an object with one key. Anything else is an object
    that equals none of a literal.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"set": [encoded(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return {"other": type(value).__name__}


def main() -> None:
    """Reads the task, gives up what the program must not use, and runs the tests until one fails."""
    task = json.loads(sys.stdin.buffer.read())
    results = fcntl.fcntl(1, fcntl.F_DUPFD, _LEAST_HELD)
    _limit(task)
    sys.setrecursionlimit(10_000)
    try:
        if "inputs" in task:
            _answer_inputs(task, results)
        else:
            _answer_calls(task, results)
    except BaseException as error:
        _write(results, {"error": type(error).__name__})
    os._exit(0)


def _answer_inputs(task: dict[str, Any], results: int) -> None:
    code = compile(task["program"], "program", "exec")
    for text in task["inputs"]:
        _redirect(text)
        _run(code, _module("__main__"))
        _finish()
        _write(results, {"output": os.pread(1, _OUTPUT_BYTES + 1, 0).decode(errors="replace")})


def _answer_calls(task: dict[str, Any], results: int) -> None:
    _redirect("")
    names = _module("program")
    _run(compile(task["setup"], "setup", "exec"), names)
    _run(compile(task["program"], "program", "exec"), names)
    for call in task["calls"]:
        _write(results, {"value": encoded(eval(compile(call, "call", "eval"), names))})


def _module(name: str) -> dict[str, Any]:
    sys.modules[name] = module = type(sys)(name)
    return module.__dict__


def _run(code: Any, names: dict[str, Any]) -> None:
    with suppress(SystemExit):
        exec(code, names)


def _redirect(text: str) -> None:
    """Makes ``text`` the standard input, and an empty file the standard output."""
    for target, content in enumerate((text.encode(errors="replace"), b"")):
        made = os.memfd_create("stream")
        # A program may have closed 0 or 1, whose number is then the next to be given.
        held = fcntl.fcntl(made, fcntl.F_DUPFD, _LEAST_HELD)
        os.close(made)
        with open(held, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(held, 0, os.SEEK_SET)
        os.dup2(held, target)
        os.close(held)
    sys.stdin = TextIOWrapper(BufferedReader(FileIO(0, closefd=False)), "utf-8")
    sys.stdout = TextIOWrapper(BufferedWriter(FileIO(1, "w", closefd=False)), "utf-8")
    sys.__stdin__, sys.__stdout__ = sys.stdin, sys.stdout  # type: ignore[misc]


def _finish() -> None:
    """Does for a program that has run what its interpreter would do at its end: threads, exit handlers, buffers."""
    threading = sys.modules.get("threading")
    for thread in threading.enumerate() if threading else ():
        if thread is not threading.main_thread() and not thread.daemon:  # type: ignore[union-attr]
            thread.join()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()


def _write(results: int, line: dict[str, Any]) -> None:
    data = memoryview(json.dumps(line).encode() + b"\n")
    while data:
        data = data[os.write(results, data) :]


def _limit(task: dict[str, Any]) -> None:
    import resource

    limits = {
        resource.RLIMIT_AS: task["memory"],
        resource.RLIMIT_CPU: task["cpu_s"],
        resource.RLIMIT_FSIZE: task["file"],
        resource.RLIMIT_NOFILE: task["files"],
        resource.RLIMIT_CORE: 0,
    }
    if task["processes"] is not None:
        limits[resource.RLIMIT_NPROC] = task["processes"]
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    main()
