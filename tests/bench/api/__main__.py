"""``make bench-api``: what admitting a signed request costs, and that none is admitted twice; then one line of JSON.

The coordinator's own server process, its database and a bare FastAPI application beside it, each on one core, which
they take turns in using; the requests were signed before, and are sent from the other core. Then everything that can be
made of one accepted request, at once, after Redis is flushed, and after the server is killed and started again.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import httpx
import redis
import typer
from rich.console import Console
from rich.table import Table

from deploy.localnet.processes import free_port
from tests.bench.api.load import per_second, raw_get
from tests.bench.api.replays import Attempt, attempts
from tests.coordinator.market import market, running, server
from tests.coordinator.swarm import Swarm, headers

SERVER_CORE = 0


def main(
    requests: Annotated[int, typer.Option(min=16, help="In each run.")] = 2000,
    runs: Annotated[int, typer.Option(min=1, help="Of each server, in turns; the medians count.")] = 5,
) -> None:
    """Measure admission, and attack it."""
    console = Console(width=120)
    with market() as swarm:
        worker = swarm.workers[0]
        path = f"/nodes/{worker.node}/assignments?wait=0"
        signed, bare = [], []
        with server(swarm.settings(), SERVER_CORE) as (port, _), bare_server() as bare_port:
            plain = [raw_get(path, {})] * requests
            for _ in range(runs):
                made = [raw_get(path, headers(swarm, worker, "GET", path)) for _ in range(requests)]
                signed.append(per_second(port, made))
                bare.append(per_second(bare_port, plain))
        _show_speed(console, signed, bare, requests)
        came = list(replayed(swarm))
    _show_replays(console, came)
    accepted = sum(status < 400 for _, _, status in came)
    ratio = statistics.median(mine / theirs for mine, theirs in zip(signed, bare, strict=True))
    told = {"signed_per_second": round(statistics.median(signed)), "bare_per_second": round(statistics.median(bare))}
    print(json.dumps(told | {"of_bare": round(ratio, 3), "replays": len(came), "accepted": accepted}))
    raise typer.Exit(int(accepted > 0))


def replayed(swarm: Swarm) -> Iterator[tuple[str, Attempt, int]]:
    """Every attempt, when it was made, and the status it was answered with."""
    with (
        server(swarm.settings(), SERVER_CORE) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        everything = list(attempts(swarm, client))
        yield from (("at once", attempt, attempt.status(client)) for attempt in everything)
        with redis.Redis.from_url(swarm.redis_url) as connection:
            connection.flushall()
        yield from (("Redis flushed", attempt, attempt.status(client)) for attempt in everything)
    with (
        server(swarm.settings(), SERVER_CORE) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield from (("server killed", attempt, attempt.status(client)) for attempt in everything)


@contextmanager
def bare_server() -> Iterator[int]:
    """The bare application; its port."""
    port = free_port()
    with running(["-m", "tests.bench.api.bare", str(port)], port, SERVER_CORE):
        yield port


def _show_speed(console: Console, signed: list[float], bare: list[float], requests: int) -> None:
    table = Table("server", title=f"{requests} requests a run, {len(signed)} runs in turns, server on one core")
    for column in ("requests /s", "least", "most"):
        table.add_column(column, justify="right")
    for name, rates in (("coordinator, signed requests", signed), ("bare FastAPI route", bare)):
        table.add_row(name, *(f"{value:,.0f}" for value in (statistics.median(rates), min(rates), max(rates))))
    console.print(table)


def _show_replays(console: Console, came: list[tuple[str, Attempt, int]]) -> None:
    moments = list(dict.fromkeys(moment for moment, _, _ in came))
    table = Table("part", "what is sent", *moments, title="answers to what was made of one accepted request")
    rows: dict[tuple[str, str], list[str]] = {}
    for _, attempt, status in came:
        rows.setdefault((attempt.part, attempt.what), []).append(str(status))
    for (part, what), statuses in rows.items():
        table.add_row(part, what, *statuses)
    console.print(table)


if __name__ == "__main__":
    os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - {SERVER_CORE} or {SERVER_CORE})
    typer.run(main)
