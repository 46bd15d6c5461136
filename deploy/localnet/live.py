"""Progress display of the local network: a live table in a terminal, otherwise one line per step."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.localnet.outcome import Metrics

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Figures:
    """State of the market from the ledger: job counts, and credits and slashes by provider in wei."""

    rounds_open: int
    rounds_settled: int
    jobs_accepted: int
    jobs_void: int
    jobs_fraud: int
    credits: dict[str, int]
    slashed: dict[str, int]


def tokens(wei: int) -> str:
    """Formats wei as tokens."""
    return f"{wei / 10**18:,.2f}"


class LiveView:
    """Shows progress until closed. ``say`` announces the current activity; ``last_version`` is None without an end."""

    def __init__(self, last_version: int | None, interactive: bool | None = None) -> None:
        self.last_version = last_version
        self.interactive = sys.stdout.isatty() if interactive is None else interactive
        self.console = Console(highlight=False)
        self.live: Live | None = None
        self.doing = ""
        self.started = time.monotonic()
        self.lines_shown = 0

    def __enter__(self) -> LiveView:
        if self.interactive:
            self.live = Live(Text("starting"), console=self.console, refresh_per_second=4, transient=False)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, sentence: str) -> None:
        """Announces the current activity."""
        self.doing = sentence
        if self.live is None:
            print(f"[{self._elapsed()}] {sentence}", flush=True)
        else:
            self.live.update(Panel(f"{sentence} …", title="assize", title_align="left"))

    def update(self, metrics: Metrics, figures: Figures) -> None:
        """Shows the state of the run."""
        if self.live is not None:
            self.live.update(self._table(metrics, figures))
            return
        for step in metrics.steps[self.lines_shown :]:
            print(f"[{self._elapsed()}] {step_line(step, metrics, figures, self.last_version)}", flush=True)
        self.lines_shown = len(metrics.steps)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes:d}:{seconds:02d}"

    def _table(self, metrics: Metrics, figures: Figures) -> Panel:
        grid = Table.grid(padding=(0, 3))
        step = metrics.steps[-1] if metrics.steps else None
        evaluated = metrics.evaluations[-1] if metrics.evaluations else None
        reward, staleness = (f"{step['reward']:.3f}", f"{step['staleness']:.2f} versions") if step else ("–", "–")
        accuracy = f"{evaluated['accuracy']:.3f} (version {evaluated['version']})" if evaluated else "–"
        rounds = f"{figures.rounds_open} open, {figures.rounds_settled} settled"
        jobs = f"{figures.jobs_accepted} accepted, {figures.jobs_void} void, {figures.jobs_fraud} fraudulent"
        end = "" if self.last_version is None else f" of {self.last_version}"
        grid.add_row("step", f"{step['version'] if step else 0}{end}", "elapsed", self._elapsed())
        grid.add_row("reward", reward, "held-out accuracy", accuracy)
        grid.add_row("staleness", staleness, "rounds", rounds)
        rewards = [float(record["reward"]) for record in metrics.steps][-SPARK_WIDTH:]
        curve = Text(f"reward by step  {spark(rewards)}")
        return Panel(
            Group(grid, Text(f"jobs by verdict {jobs}"), curve, _money(figures)), title="assize", title_align="left"
        )


def _money(figures: Figures) -> Table:
    table = Table(box=None, padding=(0, 3))
    for column in ("provider", "credits", "slashed"):
        table.add_column(column, justify="left" if column == "provider" else "right")
    for provider, credits in figures.credits.items():
        slashed = figures.slashed.get(provider, 0)
        style = "red" if slashed else None
        table.add_row(provider, tokens(credits), tokens(slashed) if slashed else "", style=style)
    return table


def spark(values: list[float]) -> str:
    """Draws values in [0, 1] as a line of block characters."""
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(value * len(BLOCKS)))] for value in values)


def step_line(step: dict[str, Any], metrics: Metrics, figures: Figures, last_version: int | None) -> str:
    """Formats a step as one line."""
    end = "" if last_version is None else f"/{last_version}"
    accuracies = [e for e in metrics.evaluations if e["version"] <= step["version"]]
    accuracy = f" accuracy {accuracies[-1]['accuracy']:.3f}@{accuracies[-1]['version']}" if accuracies else ""
    slashed = sum(figures.slashed.values())
    return (
        f"step {step['version']}{end} reward {step['reward']:.3f}{accuracy} "
        f"staleness {step['staleness']:.1f} "
        f"jobs {figures.jobs_accepted} accepted {figures.jobs_void} void {figures.jobs_fraud} fraudulent "
        f"credits {tokens(sum(figures.credits.values()))}" + (f" slashed {tokens(slashed)}" if slashed else "")
    )
