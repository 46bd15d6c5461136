"""``make bench-mirror``: events per second from RPC to committed rows, ours and others'; a table, then a line of JSON.

Each run makes a chain of its own on anvil. Four fifths of the events are there when the readers begin; then the chain
is reorganised by eight blocks and grows by ten at a time, and every reader follows each step. Only reading is timed.
What each holds at the end is compared with the chain. Ponder takes part where npm can install it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from protocol.chain.deployment import Deployment
from tests.bench.mirror.ponder_reader import Ponder, PonderFailed, install
from tests.bench.mirror.readers import FetchOnly, Ours, PerBlock, Ranges, Reader, truth
from tests.bench.mirror.spray import PER_BLOCK, Sprayer
from tests.conftest import Anvil, deploy_on

REORG_DEPTH = 8
LIVE_SHARE = 0.2
BLOCKS_IN_STEP = 10
PONDER = "Ponder"


@dataclass(frozen=True, slots=True)
class Run:
    """What one reader did in one run: seconds, events read, round trips, and rows that the chain does not say."""

    backfill_seconds: float
    live_seconds: float
    backfill_events: int
    live_events: int
    calls: int
    wrong: int

    @property
    def rate(self) -> float:
        """Events per second over both."""
        return (self.backfill_events + self.live_events) / (self.backfill_seconds + self.live_seconds)


def main(
    events: Annotated[int, typer.Option(min=10 * BLOCKS_IN_STEP * PER_BLOCK)] = 100_000,
    runs: Annotated[int, typer.Option(min=1, help="Each on a chain of its own; the medians count.")] = 3,
) -> None:
    """Read one chain in several ways."""
    console = Console(width=120)
    came: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        project: Path | None = Path(temporary) / "ponder"
        if reason := install(project):
            console.print(f"Ponder is left out, as it could not be installed: {reason}")
            project = None
        for number in range(runs):
            console.print(f"run {number + 1} of {runs}", style="dim")
            for name, run in one_run(events // PER_BLOCK, project):
                console.print(f"  {name}: {run.rate:,.0f} events a second", style="dim")
                came.setdefault(name, []).append(run)
    table = Table("reader", title=f"{events:,} transfers, {PER_BLOCK} a block; medians of {runs} runs")
    for column in ("backfill /s", "live /s", "both /s", "spread", "RPC round trips", "wrong rows"):
        table.add_column(column, justify="right")
    for name, of_name in came.items():
        rates = [run.rate for run in of_name]
        table.add_row(
            name,
            f"{statistics.median(run.backfill_events / run.backfill_seconds for run in of_name):,.0f}",
            f"{statistics.median(run.live_events / run.live_seconds for run in of_name):,.0f}",
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{of_name[-1].calls:,}",
            "-" if name == "fetching alone" else f"{max(run.wrong for run in of_name):,}",
        )
    console.print(table)

    def ratio(other: str) -> float | None:
        if len(came.get(other, [])) < runs:
            return None
        pairs = zip(came["ours"], came[other], strict=True)
        return round(statistics.median(mine.rate / theirs.rate for mine, theirs in pairs), 2)

    told = {"vs_naive": ratio("web3.py, a block a time"), "vs_ranges": ratio("web3.py, ranges")}
    print(json.dumps(told | {"vs_ponder": ratio(PONDER), "of_fetch": ratio("fetching alone")}))
    raise typer.Exit(1 if any(run.wrong for run in came["ours"]) else 0)


def one_run(blocks: int, project: Path | None) -> Iterator[tuple[str, Run]]:
    """All readers beside each other on one chain; Ponder among them where its ``project`` is installed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        anvil = Anvil(folder)
        stack.callback(anvil.stop)
        deployment = deploy_on(anvil)
        sprayer = Sprayer(anvil.rpc, deployment.token)
        live = int(blocks * LIVE_SHARE) // BLOCKS_IN_STEP * BLOCKS_IN_STEP
        sprayer.mine(blocks - live)
        readers, backfill = dict[str, Reader](), dict[str, float]()
        for name, make in _makers(anvil.url, deployment, folder, project).items():
            with _without_ponder(readers):
                readers[name] = make()
                stack.callback(readers[name].close)
                backfill[name] = _timed(readers[name])
        following = dict.fromkeys(readers, 0.0)
        anvil.rpc.call("anvil_reorg", REORG_DEPTH, [])
        for _ in range(live // BLOCKS_IN_STEP):
            sprayer.mine(BLOCKS_IN_STEP)
            for name in list(readers):
                with _without_ponder(readers):
                    following[name] += _timed(readers[name])
        told = truth(anvil.rpc, deployment.token)
        counts = ((blocks - live) * PER_BLOCK, live * PER_BLOCK)
        for name in list(readers):
            with _without_ponder(readers):
                wrong = len(readers[name].places() ^ told)
                yield name, Run(backfill[name], following[name], *counts, readers[name].calls, wrong)


def _makers(url: str, deployment: Deployment, folder: Path, project: Path | None) -> dict[str, Callable[[], Reader]]:
    """What makes each reader; one is made when its turn comes, as Ponder reads from then on."""
    makers: dict[str, Callable[[], Reader]] = {
        "ours": lambda: Ours(url, deployment, folder),
        "web3.py, a block a time": lambda: PerBlock(url, deployment, folder / "blocks.sqlite"),
        "web3.py, ranges": lambda: Ranges(url, deployment, folder / "ranges.sqlite"),
        "fetching alone": lambda: FetchOnly(url, deployment),
    }
    if project is not None:
        makers[PONDER] = lambda: Ponder(url, deployment, project, folder)
    return makers


@contextmanager
def _without_ponder(readers: dict[str, Reader]) -> Iterator[None]:
    """Goes on without Ponder where that fails."""
    try:
        yield
    except PonderFailed as failure:
        print(f"Ponder is left out of this run: {failure}")
        readers.pop(PONDER, None)


def _timed(reader: Reader) -> float:
    started = time.perf_counter()
    reader.catch_up()
    return time.perf_counter() - started


if __name__ == "__main__":
    typer.run(main)
