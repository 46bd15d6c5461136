"""Output of commands: errors as one sentence with a stable exit code, values as a table or JSON.

0  done        1  refused, or a check failed        2  misconfigured        3  unavailable
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, NoReturn, ParamSpec, TypeVar

from protocol.errors import AssizeError, Misconfigured, Unavailable

P = ParamSpec("P")
R = TypeVar("R")

EXIT_OK, EXIT_REFUSED, EXIT_MISCONFIGURED, EXIT_UNAVAILABLE = 0, 1, 2, 3

LARGEST_PLAIN_INTEGER = 2**53
"""Larger integers, and all amounts of wei, are strings in JSON, since other languages read numbers as doubles."""


def guard(command: Callable[P, R]) -> Callable[P, R]:
    """Wraps a command so that an ``AssizeError`` ends it with one sentence on stderr and an exit code."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except AssizeError as error:
            leave(error)

    return guarded


def leave(error: AssizeError) -> NoReturn:
    """Prints the error on stderr and exits."""
    print(f"assize: {error}", file=sys.stderr)
    raise SystemExit(exit_code(error)) from None


def exit_code(error: AssizeError) -> int:
    """Returns the exit code for this kind of error."""
    if isinstance(error, Misconfigured):
        return EXIT_MISCONFIGURED
    if isinstance(error, Unavailable):
        return EXIT_UNAVAILABLE
    return EXIT_REFUSED


def show(values: Sequence[Mapping[str, Any]] | Mapping[str, Any], as_json: bool, title: str = "") -> None:
    """Prints one row or several, as a table or as JSON on one line."""
    if as_json:
        print(json.dumps(jsonable(values)))
        return
    from rich.console import Console
    from rich.table import Table

    rows = [values] if isinstance(values, Mapping) else list(values)
    if isinstance(values, Mapping):
        table = Table(title=title or None, show_header=False)
        for name, value in values.items():
            table.add_row(name, text_of(value))
    else:
        table = Table(*(rows[0] if rows else ("no rows",)), title=title or None)
        for row in rows:
            table.add_row(*(text_of(value) for value in row.values()))
    Console().print(table)


def picked(value: object, *names: str, **renamed: str) -> dict[str, object]:
    """Returns a row of a value's attributes: ``names`` as they are, then others under new names."""
    return {shown: getattr(value, name) for shown, name in (*zip(names, names, strict=True), *renamed.items())}


def jsonable(value: Any, name: str = "") -> Any:
    """Returns a value for JSON: bytes as 0x-hex, wei and large integers as strings, enums as names."""
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return str(value) if name.endswith("_wei") or abs(value) >= LARGEST_PLAIN_INTEGER else value
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, str(key)) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name), field.name) for field in fields(value)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [jsonable(item) for item in value]
    return value if isinstance(value, float) else str(value)


def text_of(value: Any) -> str:
    """Returns the text of a table cell."""
    shown = jsonable(value)
    return shown if isinstance(shown, str) else json.dumps(shown)
