"""``make bench-pages``: every page of the explorer, cold and warm, and its size.

Cold is the first page of a fresh process, the median of five; warm the median of 30 in a row. The chain is the one of
``make bench-ledger``, of a million events, which is grown once and kept; ``--events 0`` takes that of the tests'
stories; ``--database`` one that was read before, with ``--rpc`` and ``--addresses`` of its chain. A table, then a line
of JSON; exit 1 where a page fails or misses a mark.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from ledger.api.bodies import pack_cursor
from ledger.explorer.rendering import Asset, asset, assets
from ledger.store.database import Database
from ledger.store.index import sync
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from tests.bench.ledger.growing import Grown
from tests.bench.ledger.kept import kept, read
from tests.conftest import ROOT, Anvil, deploy_on, wallet_on
from tests.ledger import disputes
from tests.ledger.scenario import Market, tell

HTML = {"Accept": "text/html"}
SETTLED = ("settled", "void")
COLD_MS, WARM_MS, KIB = 150, 50, 200
"""Marks of the slowest page, and of the largest with all that it loads."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One page: milliseconds of its first request and of later ones, and its size in KiB with all that it loads."""

    cold_ms: float
    warm_ms: float
    kib: float


@dataclass(frozen=True, slots=True)
class Place:
    """A chain and the database that is read from it; ``grown`` names what there is most about in a grown one."""

    rpc: str
    addresses: Path
    database: str
    grown: Grown | None = None


def main(
    database: Annotated[str | None, typer.Option(help="Database read before; needs --rpc and --addresses.")] = None,
    rpc: Annotated[str | None, typer.Option(help="RPC of its chain.")] = None,
    addresses: Annotated[Path | None, typer.Option(help="Its address file.")] = None,
    events: Annotated[int, typer.Option(min=0, help="Events of the chain; 0 takes the stories.")] = 1_000_000,
    cold: Annotated[int, typer.Option(min=1, help="Fresh processes for each page.")] = 5,
    warm: Annotated[int, typer.Option(min=1, help="Requests in a row for each page.")] = 30,
) -> None:
    """Ask every page of a chain's ledger."""
    console = Console(width=120)
    given = (database, rpc, addresses)
    if any(given) and not all(given):
        raise typer.BadParameter("give --database, --rpc and --addresses together")
    with tempfile.TemporaryDirectory() as folder:
        where = partial(_chain, Path(folder), events, lambda what: console.print(what, style="dim"))
        with _given(rpc, addresses, database) if database and rpc and addresses else where() as place:
            measured = measure(place, cold, warm)
    table = Table("page", title=f"milliseconds: cold median of {cold}, warm median of {warm}")
    for column in ("cold", "warm", "KiB"):
        table.add_column(column, justify="right")
    for name, one in measured.items():
        table.add_row(name, f"{one.cold_ms:.1f}", f"{one.warm_ms:.1f}", f"{one.kib:.1f}")
    console.print(table)
    told = {
        "pages": len(measured),
        "slowest_cold_ms": round(max(one.cold_ms for one in measured.values()), 1),
        "slowest_warm_ms": round(max(one.warm_ms for one in measured.values()), 1),
        "largest_page_kib": round(max(one.kib for one in measured.values()), 1),
    }
    print(json.dumps(told))
    marks = {"slowest_cold_ms": COLD_MS, "slowest_warm_ms": WARM_MS, "largest_page_kib": KIB}
    raise typer.Exit(int(any(told[name] > most for name, most in marks.items())))


def measure(place: Place, cold: int, warm: int) -> dict[str, Timed]:
    """Times every page; the processes one after the other."""
    with _served(place) as http:
        pages = paths(http) | (laden(http, place.grown) if place.grown else {})
        size = {name: _size(_page(http, path)) / 1024 for name, path in pages.items()}
        warmed = {name: _median(partial(_page, http, path), warm) for name, path in pages.items()}
    first: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(cold):
        for name, path in pages.items():
            with _served(place) as http:
                first[name].append(_took(partial(_page, http, path)))
    return {name: Timed(statistics.median(first[name]), warmed[name], size[name]) for name in pages}


def _size(page: httpx.Response) -> int:
    """Returns the bytes of a page with its style sheets and scripts."""
    return len(page.content) + sum(len(each.data) for each in assets().values() if each.url in page.text)


def _style() -> Asset:
    found = asset("explorer.css")
    assert found
    return found


def paths(http: httpx.Client) -> dict[str, str]:
    """Returns every page by its name, of things that the API knows: of its first rounds one with the most jobs."""
    rounds = [each for each in _items(http, "/rounds") if not each["parent"]]
    round_ = max(
        rounds, key=lambda each: (each["state"] in SETTLED, each["submitted"] != "0x0", each["jobs"], each["round"])
    )
    run, number = round_["run"], round_["round"]
    slash, node = _items(http, "/slashes")[-1], _items(http, "/nodes")[0]
    version = next(each["version"] for each in _items(http, "/runs") if each["run"] == run)
    owner, seat = node["owner"], _items(http, "/validators")[0]["validator"]
    lists = ("/", "/runs", "/rounds", "/nodes", "/validators", "/credits", "/checkpoints", "/slashes", "/appeals")
    lists += ("/fairness", "/treasury", "/audit", "/detection", "/events")
    things = {
        "/rounds?run=…": f"/rounds?run={run}",
        "/runs/…": f"/runs/{run}",
        "/rounds/…": f"/rounds/{number}",
        "/why/jobs/…": f"/why/jobs/{number}/0",
        "/why/entries/…": f"/why/entries/{slash['block_number']}/{slash['log_index']}",
        "/nodes/… worker": f"/nodes/{node['node']}",
        "/nodes/… validator": f"/nodes/{seat}",
        "/nodes/…/verdicts": f"/nodes/{node['node']}/verdicts",
        "/credits/…": f"/credits/{owner}",
        "/credits/…/entries": f"/credits/{owner}/entries",
        "/checkpoints/…": f"/checkpoints/{run}/{version}",
        "/transactions/…": f"/transactions/{slash['tx_hash']}",
        "/search number": "/search?q=1",
        "/search address": f"/search?q={node['key']}",
        "/search hash": f"/search?q={round_['beacon']}",
    }
    return {path: path for path in lists} | things


def laden(http: httpx.Client, grown: Grown) -> dict[str, str]:
    """Returns pages of a grown chain that have most to find, and what is looked for everywhere and is nowhere."""
    (worker,) = http.get(f"/credits/{grown.worker}").raise_for_status().json()["nodes"]
    middle, cheat = grown.marks[-1][0] // 2, grown.crooked
    place, job = pack_cursor((middle, 0)), pack_cursor((middle, 3))
    return {
        "/credits/… of most": f"/credits/{grown.trader}",
        "/credits/…/entries middle": f"/credits/{grown.trader}/entries?before={place}",
        "/credits/… of a worker": f"/credits/{grown.worker}",
        "/nodes/… of most jobs": f"/nodes/{worker['node']}",
        "/nodes/… of most slashes": f"/nodes/{cheat}",
        "/nodes/…/verdicts middle": f"/nodes/{worker['node']}/verdicts?before={job}",
        "/slashes?node=… middle": f"/slashes?node={cheat}&before={place}",
        "/appeals?round=…": f"/appeals?round={middle}",
        "/events middle": f"/events?after={place}",
        "/events?name=… middle": f"/events?name=VoteRevealed&after={place}",
        "/fairness middle": f"/fairness?after={pack_cursor((cheat + 100,))}",
        "/search address of runs": f"/search?q={grown.trader}",
        "/search unknown address": f"/search?q=0x{'5a' * 20}",
        "/search unknown hash": f"/search?q=0x{'5a' * 32}",
    }


def _items(http: httpx.Client, path: str, **only: Any) -> list[dict[str, Any]]:
    answer = http.get(path, params={"limit": 500} | only)
    items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return items


def _page(http: httpx.Client, path: str) -> httpx.Response:
    answer = http.get(path, headers=HTML)
    if answer.status_code not in (200, 303):
        raise SystemExit(f"{path} answers {answer.status_code}: {answer.text[-600:]}")
    return answer


def _took(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return 1000 * (time.perf_counter() - began)


def _median(ask: Callable[[], object], times: int) -> float:
    return statistics.median(_took(ask) for _ in range(times))


@contextmanager
def _served(place: Place) -> Iterator[httpx.Client]:
    """A fresh ``assize ledger serve`` that was asked for its style sheet alone: neither database nor template."""
    words = [
        "ledger",
        "serve",
        "--rpc",
        place.rpc,
        "--addresses",
        place.addresses,
        "--db",
        place.database,
        "--port",
        "0",
    ]
    process = subprocess.Popen([sys.executable, ROOT / "assize.py", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ledger at "):
            raise SystemExit(f"the ledger does not start: {line!r}")
        with httpx.Client(base_url=line.split()[-1], timeout=120, trust_env=False) as http:
            http.get(_style().url).raise_for_status()  # it listens before it answers
            time.sleep(0.3)  # until the follower has looked once
            yield http
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _given(rpc: str, addresses: Path, database: str) -> Iterator[Place]:
    yield Place(rpc, addresses, database)


@contextmanager
def _chain(folder: Path, events: int, say: Callable[[str], None]) -> Iterator[Place]:
    if events:
        with kept(events, say) as chain:
            yield Place(chain.url, chain.addresses, str(read(chain, say)), chain.grown)
        return
    anvil = Anvil(folder)
    try:
        deployment = _told(anvil, folder)
        addresses, database = folder / "addresses.json", folder / "ledger.sqlite"
        addresses.write_text(json.dumps(deployment.to_json()))
        with closing(Chain(anvil.url, deployment)) as chain, closing(Database(database, deployment)) as opened:
            sync(chain, opened)
        yield Place(anvil.url, addresses, str(database))
    finally:
        anvil.stop()


def _told(anvil: Anvil, folder: Path) -> Deployment:
    deployment = deploy_on(anvil)
    with (
        closing(Chain(anvil.url, deployment)) as chain,
        closing(Market(chain, anvil, partial(wallet_on, anvil), folder)) as market,
    ):
        tell(market)
        disputes.told(disputes.begin(market))
    return deployment


if __name__ == "__main__":
    typer.run(main)
