"""``make bench-live``: a thousand streams of events, held open by one ledger, and how late each update comes.

A ledger process follows a chain on which a transaction is mined about every second. A client process of its own holds
the streams open over loopback. An update is late by the time from before its transaction was sent until the stream told
of its block or a newer one. A table, then a line of JSON; exit 1 where an update is missing or over 2 s late, or where
the ledger held more than 400 MiB.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import psutil
import typer
from rich.console import Console
from rich.table import Table

from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.transport.connections import allow_files
from tests.bench.ledger.serving import serving
from tests.conftest import ROOT, Anvil, deploy_on, wallet_on
from tests.ledger.scenario import Market, tell

LATE_SECONDS, SERVER_MIB = 2.0, 400
"""Marks."""
EVERY_SECONDS = 1.0
"""Between two transactions."""
AT_ONCE = 50
"""Streams that are opened side by side."""

Told = list[tuple[int, float]]
"""Blocks of one stream's events, and the monotonic seconds at which they came."""

app = typer.Typer()


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    streams: Annotated[int, typer.Option(min=1, max=1_000)] = 1_000,
    seconds: Annotated[float, typer.Option(min=1)] = 60,
) -> None:
    """Hold streams open while blocks are mined."""
    if context.invoked_subcommand:
        return
    console = Console(width=100)
    with tempfile.TemporaryDirectory() as folder, _market(Path(folder)) as market:
        addresses = Path(folder) / "addresses.json"
        market.deployment.save(addresses)
        with serving(market.anvil.url, addresses, f"{folder}/ledger.sqlite") as served:
            before = psutil.Process(served.process.pid).memory_info().rss / 2**20
            served.read_to([market.chain.head().number])
            with _client(str(served.http.base_url), streams) as client, _memory(served.process.pid) as most_mib:
                mined = _mine(market, seconds)
                time.sleep(LATE_SECONDS)
                answer, _ = client.communicate(timeout=60)
    late = sorted(each for told in json.loads(answer) for each in _lateness(mined, told))
    wanted = streams * len(mined)
    worst, p99 = max(late, default=0.0), statistics.quantiles(late, n=100)[-1]
    table = Table("streams", "blocks", "updates", "late, median", "p99", "most", "ledger, before", "with streams")
    figures = (f"{statistics.median(late):.2f} s", f"{p99:.2f} s", f"{worst:.2f} s")
    table.add_row(
        str(streams), str(len(mined)), str(len(late)), *figures, f"{before:.0f} MiB", f"{most_mib[0]:.0f} MiB"
    )
    console.print(table)
    told = {"streams": streams, "updates": len(late), "late_p99_s": round(p99, 2), "late_max_s": round(worst, 2)}
    print(json.dumps(told | {"server_mib": round(most_mib[0])}))
    raise typer.Exit(int(len(late) < wanted or worst > LATE_SECONDS or most_mib[0] > SERVER_MIB))


@app.command()
def hold(url: str, streams: int) -> None:
    """Hold streams of a ledger open until the input ends, then print what they told."""
    allow_files(2 * streams + 100)
    print(json.dumps(asyncio.run(_hold(url, streams))))


async def _hold(url: str, streams: int) -> list[Told]:
    opening = asyncio.Semaphore(AT_ONCE)
    heard: list[Told] = [[] for _ in range(streams)]
    first = [asyncio.Event() for _ in range(streams)]
    listening = [asyncio.create_task(_listen(url, *each, opening)) for each in zip(heard, first, strict=True)]
    await asyncio.gather(*(each.wait() for each in first))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for each in listening:
        each.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    return heard


async def _listen(url: str, heard: Told, first: asyncio.Event, opening: asyncio.Semaphore) -> None:
    place = urlsplit(url)
    async with opening:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"GET /live HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode())
        status = await reader.readline()
        assert b" 200 " in status, status
    async for line in reader:
        if line.startswith(b"data: "):
            heard.append((json.loads(line[6:])["block"], time.monotonic()))
            first.set()
    raise SystemExit("a stream has ended")


def _lateness(mined: Told, told: Told) -> Iterator[float]:
    """Yields by how many seconds a stream's updates were late; those that never came are left out."""
    blocks = [block for block, _ in told]
    for block, sent_at in mined:
        place = bisect_left(blocks, block)
        if place < len(told):
            yield told[place][1] - sent_at


def _mine(market: Market, seconds: float) -> Told:
    """Mines a transaction about every second; returns its blocks, and when each was about to be sent."""
    buyer, mined, end = market.rich("buyer", "Credits"), Told(), time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        mined.append((market.send(buyer, calls.buy(market.deployment, 10**15)).block_number, began))
        time.sleep(max(0.0, began + EVERY_SECONDS - time.monotonic()))
    return mined


@contextmanager
def _market(folder: Path) -> Iterator[Market]:
    anvil = Anvil(folder)
    try:
        with (
            closing(Chain(anvil.url, deploy_on(anvil))) as chain,
            closing(Market(chain, anvil, partial(wallet_on, anvil), folder)) as market,
        ):
            tell(market)
            yield market
    finally:
        anvil.stop()


@contextmanager
def _client(url: str, streams: int) -> Iterator[subprocess.Popen[str]]:
    """Holds the streams open in a process of its own; yields it once each has told of a block."""
    command = [sys.executable, "-m", "tests.bench.live", "hold", url, str(streams)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout
        line = process.stdout.readline()
        if line != "ready\n":
            raise SystemExit(f"the streams do not open: {line!r}")
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _memory(pid: int) -> Iterator[list[float]]:
    """Watches a process; yields the most MiB that it held."""
    watched, ended, most = psutil.Process(pid), threading.Event(), [0.0]

    def look() -> None:
        while not ended.wait(0.2):
            most[0] = max(most[0], watched.memory_info().rss / 2**20)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    app()
