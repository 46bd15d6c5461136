"""Watches: a view of something that changes, shown until Ctrl-C.

    terminal   redrawn in place once a second, in one column of names and values or, from WIDE columns on, in two
    pipe       a line whenever something changed, without control characters
    --json     the figures of each look as one line
    --once     one look

A view is a value without clock or console, so that it can be tested: state in, lines out. What fails while watching
(an RPC, a file) is told in the view, and the next look tries again; it ends a watch only at the first look.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from protocol.errors import AssizeError
from protocol.node.console import jsonable, screen
from protocol.node.terminal import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_SECONDS = 1.0
WIDE = 110
"""Columns from which names and values stand in two columns."""

NUMBER = re.compile(r"[-+–]?[\d,.]*%?")

Once = Annotated[bool, typer.Option("--once", help="Look once and end.")]
Tone = Literal["", "good", "bad", "busy"]
STYLES: dict[Tone, str] = {"": "", "good": "green", "bad": "bold red", "busy": "cyan"}
"""Colours stand beside words that say the same; without colour nothing is lost."""


@dataclass(frozen=True, slots=True)
class Row:
    """A name and its value."""

    name: str
    value: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table beneath the rows: numbers stand to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class View:
    """One look.

    Args:
        title: subject of the watch.
        rows: names and values.
        notes: sentences beneath them, newest first.
        line: the look in one line, for a pipe: a line that did not change is not repeated.
        figures: the look for JSON.
        grid: table between rows and notes, if any.
    """

    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    line: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid | None = None


def watch(look: Callable[[], View], once: bool, as_json: bool) -> None:
    """Shows what ``look`` returns until Ctrl-C or until nobody reads; a failure of the first look is raised."""
    try:
        view = look()
        if once and not as_json:
            console = screen()
            console.print(drawn(view, console.width))
            return
        with showing(as_json) as show_view:
            while True:
                show_view(view)
                if once:
                    return
                time.sleep(LOOK_SECONDS)
                view = _looked(look, view)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more at exit


@contextmanager
def showing(as_json: bool) -> Iterator[Callable[[View], None]]:
    """Yields a function that shows a view: in place on a terminal, else as a line if it changed, or as JSON."""
    console = screen()
    if as_json or not console.is_terminal:
        told = ""

        def tell(view: View) -> None:
            nonlocal told
            line = json.dumps(jsonable(view.figures)) if as_json else printable(view.line).replace("\n", " ")
            if as_json or line != told:
                print(line, flush=True)
                told = line

        yield tell
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda view: live.update(drawn(view, console.width), refresh=True)


def _looked(look: Callable[[], View], last: View) -> View:
    """Returns the next look, or the last one with what went wrong."""
    try:
        return look()
    except AssizeError as error:
        return with_problem(last, str(error))


def with_problem(last: View, problem: str) -> View:
    """Returns the last look with a sentence on why there is no newer one. PURE."""
    told = f"not up to date: {problem}"
    notes = (told, *(note for note in last.notes if not note.startswith("not up to date: ")))
    return replace(last, notes=notes, line=told, figures={**last.figures, "problem": problem})


def drawn(view: View, columns: int) -> RenderableType:
    """Returns a view for a terminal of this width. Values are folded, never cut."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(view.title), "bold"), _pairs(view.rows, 2 if columns >= WIDE else 1)]
    if view.grid is not None and view.grid.rows:
        parts += [Text(""), _table(view.grid)]
    if view.notes:
        parts += [Text(""), *(Text(printable(note)) for note in view.notes)]
    return Group(*parts)


def lines_of(view: View, columns: int) -> list[str]:
    """Returns the lines of a view in a terminal of this width, without colours."""
    from rich.console import Console

    console = Console(width=columns, color_system=None, file=sys.stdout, force_terminal=False)
    with console.capture() as captured:
        console.print(drawn(view, columns))
    return [line.rstrip() for line in captured.get().splitlines()]


def _pairs(rows: Sequence[Row], across: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), expand=across > 1)
    for _ in range(across):
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold", ratio=1 if across > 1 else None)
    height = -(-len(rows) // across)
    for at in range(height):
        cells: list[RenderableType] = []
        for row in rows[at::height]:
            cells += [Text(row.name), Text(printable(row.value), STYLES[row.tone])]
        table.add_row(*cells)
    return table


def _table(grid: Grid) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for at, heading in enumerate(grid.headings):
        number = all(NUMBER.fullmatch(row[at]) for row in grid.rows)
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
