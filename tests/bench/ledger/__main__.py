"""``make bench-ledger``: a chain of a million events read and answered for, in SQLite and in PostgreSQL.

The chain is anvil's, with the real contracts on it: rounds, appeals, slashes, checkpoints, owners, workers, runs and
transfers; it is grown once and kept (``kept.py``). For each database a ledger process reads it from its first block,
its memory watched, and is then asked for every list there is, and why. A table, then a line of JSON; exit 1 where half
of the answers to a question take 100 ms, or where an owner's statement differs from its balance.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.bench.ledger.asking import Latency, lists, places, timed, whys
from tests.bench.ledger.growing import Grown
from tests.bench.ledger.kept import kept
from tests.bench.ledger.serving import Read, Served, serving
from tests.bench.ledger.statements import Compared, compare
from tests.postgresql import new_database, postgresql_server

SHARES = (0.1, 0.5, 1.0)
"""Of the events, at which the memory is looked at."""
SLOWEST_MS = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """One database: how the chain was read, and how long answers took, by what was asked."""

    read: Read
    rate: float
    pages: dict[str, Latency]
    whys: dict[str, Latency]
    statements: Compared

    @property
    def growth_mib(self) -> float:
        """How much more memory was held at the end than after the first tenth."""
        return self.read.most_mib[-1] - self.read.most_mib[0]

    def told(self) -> dict[str, Any]:
        """For the line of JSON: the worst of each."""
        return {
            "events_per_second": round(self.rate),
            "rss_mb": [round(most) for most in self.read.most_mib],
            "rss_growth_mb": round(self.growth_mib),
            "median_ms": _worst(self.pages, "median"),
            "p95_ms": _worst(self.pages, "p95"),
            "why_ms": _worst(self.whys, "median"),
            "why_p95_ms": _worst(self.whys, "p95"),
            "statement_owners": self.statements.owners,
            "statement_differences": self.statements.differences,
        }


def main(
    events: Annotated[int, typer.Option(min=20_000)] = 1_000_000,
    requests: Annotated[int, typer.Option(min=5, help="For each page, and for each kind of why.")] = 30,
) -> None:
    """Grow a chain, read it into both databases, ask them."""
    console = Console(width=140)

    def say(what: str) -> None:
        console.print(what, style="dim")

    with tempfile.TemporaryDirectory() as name, kept(events, say) as chain:
        grown = chain.grown
        say(f"{grown.events:,} events in {grown.marks[-1][0]:,} blocks")
        measured = {}
        for kind, where in _databases(Path(name)):
            say(f"{kind}: reading")
            with serving(chain.url, chain.addresses, where) as served:
                compared = partial(compare, chain.url, chain.addresses, where)
                measured[kind] = _measure(served, grown, requests, say, compared)
    _show(console, measured, grown.events)
    print(json.dumps({"events": grown.events, **{kind: one.told() for kind, one in measured.items()}}))
    slow = [one for of in measured.values() for one in (*of.pages.values(), *of.whys.values())]
    differ = any(one.statements.differences for one in measured.values())
    raise typer.Exit(int(differ or any(one.median >= SLOWEST_MS for one in slow)))


def _databases(folder: Path) -> Iterator[tuple[str, str]]:
    yield "sqlite", str(folder / "ledger.sqlite")
    with postgresql_server() as url:
        yield "postgresql", new_database(url)


def _measure(
    served: Served, grown: Grown, requests: int, say: Callable[[str], None], compared: Callable[[], Compared]
) -> Measured:
    read = served.read_to([grown.block_at(share) for share in SHARES])
    rate = grown.events / read.seconds
    say(f"  {rate:,.0f} events a second; {', '.join(f'{most:.0f}' for most in read.most_mib)} MiB")
    known = {"owner": grown.trader, "run": grown.run, "node": grown.crooked, "round": 1, "name": "VoteRevealed"}
    known["since"] = 0
    pages: dict[str, list[str]] = {}
    for address in lists(served.http.get("/openapi.json").json(), known):
        shown = address.replace(grown.trader, "OWNER")
        found, length = places(served.http, address)
        assert address != "/events" or length == grown.events, f"{length} events listed of {grown.events}"
        for where, place in found.items():
            pages[f"{shown}, {where} of {length:,}"] = [place]
    why = whys(served.http, grown.worker, requests)
    took = timed(served.http, pages | why, requests)
    statements = compared()
    say(
        f"  statements of {statements.owners:,} owners with {statements.movements:,} movements: "
        f"{statements.differences} differ from the contract's balances"
    )
    return Measured(read, rate, {page: took[page] for page in pages}, {what: took[what] for what in why}, statements)


def _worst(of: dict[str, Latency], which: str) -> float:
    return round(max(getattr(one, which) for one in of.values()), 1)


def _show(console: Console, measured: dict[str, Measured], events: int) -> None:
    table = Table("asked for", title=f"{events:,} events; milliseconds, median and 95th percentile")
    for kind in measured:
        table.add_column(kind, justify="right")
        table.add_column("p95", justify="right")
    everything = [{**one.pages, **one.whys} for one in measured.values()]
    for what in everything[0]:
        table.add_row(what, *(f"{ms:.1f}" for each in everything for ms in (each[what].median, each[what].p95)))
    console.print(table)
    for kind, one in measured.items():
        rss = ", ".join(f"{most:.0f}" for most in one.read.most_mib)
        console.print(f"{kind}: {one.rate:,.0f} events a second; {rss} MiB at most up to 10, 50 and 100% of them")


if __name__ == "__main__":
    typer.run(main)
