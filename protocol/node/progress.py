"""Progress of long transfers and counted work at the terminal: a bar with time left, or a line each tenth in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

TENTHS = 10
THOUSAND, THREE = 1000, 3
PREFIXES = "kMGT"


class TransferBar:
    """Shows how much of a transfer has arrived, on standard error, so that standard output stays for the answer.

    Threads may share it. ``quiet`` shows nothing.
    """

    def __init__(self, title: str, quiet: bool = False, out: TextIO | None = None) -> None:
        self._title, self._out, self._lock = title, out or sys.stderr, threading.Lock()
        self._quiet, self._total, self._done, self._tenth = quiet, 0, 0, 0
        self._started = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._out.isatty():
            self._bar = _bar(self._out)
            self._bar.add_task(self._title, total=None)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, total: int, held: int) -> None:
        """Takes the size of the whole, and the part of it that is there already."""
        with self._lock:
            self._total, self._done, self._tenth = total, held, TENTHS * held // max(total, 1)
            self._started = time.monotonic()
        if self._bar is not None:
            self._bar.reset(self._bar.task_ids[0], total=total, completed=held)
        elif held:
            self._say(f"{self._title}: {size(held)} of {size(total)} are here from an earlier attempt")

    def took(self, amount: int) -> None:
        """Adds bytes that have arrived."""
        with self._lock:
            self._done += amount
            before, self._tenth = self._tenth, TENTHS * self._done // max(self._total, 1)
            told = progress_line(self._title, self._done, self._total, time.monotonic() - self._started)
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], amount)
        elif self._total and self._tenth > before:
            self._say(told)

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, file=self._out, flush=True)


class CountBars:
    """Shows how far counted work has come, on standard error: a bar for each title. Not for use by several threads."""

    def __init__(self, out: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._out = out or sys.stderr
        self._bars = Progress(console=Console(file=self._out), disable=not self._out.isatty())
        self._tasks: dict[str, TaskID] = {}
        self._tenths: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Prints a line above the bars."""
        print(line, file=self._out, flush=True) if self._bars.disable else self._bars.print(line, markup=False)

    def reached(self, title: str, done: int, of: int, unit: str) -> None:
        """Takes the count that the work called ``title`` has reached, of so many in all."""
        if not self._bars.disable:
            if title not in self._tasks:
                self._tasks[title] = self._bars.add_task(title)
            self._bars.update(self._tasks[title], total=of, completed=done)
            return
        before, self._tenths[title] = self._tenths.get(title, 0), TENTHS * done // max(of, 1)
        if self._tenths[title] > before:
            self.say(f"{title}: {done:,} of {of:,} {unit}")


def _bar(out: TextIO) -> Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=None),
        progress.TaskProgressColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=Console(file=out),
    )


def progress_line(title: str, done: int, total: int, seconds: float) -> str:
    """Returns a line on a transfer that has run for ``seconds``. PURE."""
    line = f"{title}: {100 * done // max(total, 1)} %, {size(done)} of {size(total)} after {seconds:.0f} s"
    rate = done / seconds if seconds > 0 else 0.0
    return f"{line}, {size(int(rate))}/s, {(total - done) / rate:.0f} s left" if 0 < done < total and rate else line


def size(count: int) -> str:
    """Returns a number of bytes as people read it."""
    if count < THOUSAND:
        return f"{count} B"
    power = min(len(str(count)) - 1, THREE * len(PREFIXES)) // THREE
    return f"{count / THOUSAND**power:.1f} {PREFIXES[power - 1]}B"
