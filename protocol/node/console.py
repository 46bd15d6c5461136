"""Output of commands: errors as one sentence with a stable exit code, values as a table or JSON.

0  done     1  refused, or a check failed     2  misconfigured     3  unavailable     130  interrupted by Ctrl-C
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from protocol.amounts import coin, tokens
from protocol.errors import AssizeError, Misconfigured, Unavailable
from protocol.masking import masked
from protocol.times import clock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

P = ParamSpec("P")
R = TypeVar("R")

EXIT_OK, EXIT_REFUSED, EXIT_MISCONFIGURED, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

WIDEST = 10_000
"""Columns of output that no terminal shows."""

COIN_AMOUNTS = frozenset({"native_wei", "fee_wei", "most_cost_wei"})
"""Names of amounts of the chain's own coin; those of the other ``_wei`` are tokens or credits."""

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
        except KeyboardInterrupt as interrupt:
            note(str(interrupt) or "interrupted")
            raise SystemExit(EXIT_INTERRUPTED) from None

    return guarded


def note(text: str) -> None:
    """Prints a line for people on stderr, credentials in URLs masked."""
    print(f"assize: {masked(text)}", file=sys.stderr)


def leave(error: AssizeError) -> NoReturn:
    """Prints the error on stderr and exits."""
    note(str(error))
    raise SystemExit(exit_code(error)) from None


def exit_code(error: AssizeError) -> int:
    """Returns the exit code for this kind of error."""
    if isinstance(error, Misconfigured):
        return EXIT_MISCONFIGURED
    if isinstance(error, Unavailable):
        return EXIT_UNAVAILABLE
    return EXIT_REFUSED


def show(values: Sequence[Mapping[str, Any]] | Mapping[str, Any], as_json: bool, title: str = "") -> None:
    """Prints one row or several: as JSON on one line, a table, or cards where the table is wider than the terminal."""
    if as_json:
        print(json.dumps(jsonable(values)))
        return
    from rich.measure import Measurement

    console = screen()
    rows = [values] if isinstance(values, Mapping) else list(values)
    if isinstance(values, Mapping) or not rows:
        console.print(_card(rows[0], title) if rows else "none", soft_wrap=not rows)
        return
    table = _table(rows, title)
    if Measurement.get(console, console.options.update(width=WIDEST), table).maximum <= console.width:
        console.print(table)
        return
    for row in rows:
        console.print(_card(row, title))


def screen(wide: int = WIDEST) -> Console:
    """Returns the console for tables. Output to a pipe or a file has ``wide`` columns, by default enough for any."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=wide)


def _table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Returns rows as a table, headed by their names."""
    from rich.table import Table

    table = Table(title=title or None)
    for name in rows[0]:
        table.add_column(_heading(name), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    return table


def _card(row: Mapping[str, Any], title: str) -> Table:
    """Returns one row as a name and a value to a line. A value that is wider than the terminal goes on below."""
    from rich.table import Table

    card = Table(title=title or None, show_header=False)
    card.add_column(no_wrap=True)
    card.add_column(overflow="fold")
    for name, value in row.items():
        card.add_row(_heading(name), _cell(name, value))
    return card


def _heading(name: str) -> str:
    return name.removesuffix("_wei").replace("_", " ")


def _cell(name: str, value: Any) -> Text:
    """Returns the text of a value, in which nothing is markup: of an amount in ``_wei``, of a time in ``_at``."""
    from rich.text import Text

    if name.endswith("_wei") and isinstance(value, int):
        return Text(coin(value) if name in COIN_AMOUNTS else tokens(value))
    if name.endswith("_at") and isinstance(value, int):
        return Text(clock(value))
    return Text(text_of(value))


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
