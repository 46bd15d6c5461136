"""``make network``: the market over a network of hosts; at the end a line of JSON, and exit 1 if a rule was broken."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.network.ground import forbidden, ground, missing_programs
from tests.network.market import HOSTS, Market, Wanted
from tests.network.people import Count, clocked
from tests.network.plan import Plan
from tests.s3.servers import KINDS, Kind

MOST_SECONDS = 1_200
"""Longest run with one object store."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A market's run with one object store."""

    versions: int
    audit: str
    shared_paths: int
    commands_typed: int
    typed_again: int
    slashes: int
    connections: int
    connections_lost: int
    seconds: float

    def holds(self, versions: int) -> bool:
        """Returns whether it came to its last version in time, slashed the cheat, passed its audit, shared no file."""
        in_time = self.seconds <= MOST_SECONDS
        return in_time and (
            self.versions >= versions and self.slashes > 0 and self.audit == "ok" and self.shared_paths == 0
        )


def main() -> int:
    """Runs the market, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--plain", action="store_true", help="plain processes, as where namespaces are forbidden")
    parser.add_argument("--store", choices=KINDS, help="the object store; else each of them in turn")
    parser.add_argument("--model", type=Path, help="a model to start from, in place of one that is made")
    given = parser.parse_args()
    separate = not given.plain
    if separate and (packages := missing_programs()):
        print(
            f"network namespaces take programs that are missing: apt-get install {' '.join(packages)}", file=sys.stderr
        )
        return 2
    if separate and (why := forbidden()):
        print(f"no namespaces here ({why}): plain processes with addresses of their own, and no rate", flush=True)
        separate = False
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    began, ran = time.monotonic(), {}
    for store in (given.store,) if given.store else KINDS:
        ran[store] = run(given.versions, separate, store, given.model)
    print(json.dumps(summed(ran) | {"seconds": round(time.monotonic() - began, 1), "stores": _shown(ran)}))
    return 0 if all(each.holds(given.versions) for each in ran.values()) else 1


def summed(ran: Mapping[str, Ran]) -> dict[str, Any]:
    """Returns the figures of all runs: the least, the worst, or the sum."""
    found = next((each.audit for each in ran.values() if each.audit != "ok"), "ok")
    return {
        "versions": min(each.versions for each in ran.values()),
        "audit": found,
        "shared_paths": sum(each.shared_paths for each in ran.values()),
        "commands_typed": sum(each.commands_typed for each in ran.values()),
    }


def _shown(ran: Mapping[str, Ran]) -> dict[str, Any]:
    return {store: asdict(each) for store, each in ran.items()}


def run(versions: int, separate: bool, store: Kind, model: Path | None) -> Ran:
    """Runs a market to its last version, and has it audited."""
    began = time.monotonic()
    count = Count(clocked(began))
    count.say(f"hosts: {', '.join(host.name for host in HOSTS)}; object store: {store}")
    with ground(lambda prefix: Plan(HOSTS, prefix), separate) as laid, ExitStack() as opened:
        try:
            market = Market(laid, opened, count, Wanted(versions, store, model))
            return _run(market, began)
        finally:
            laid.end()


def _run(market: Market, began: float) -> Ran:
    market.start()
    published, slashes = market.watch()
    audit = market.audit()
    market.look()
    for path in market.sharing.paths():
        market.count.say(f"shared: {path}")
    figures, again = market.ground.counts(), sum(person.typed_again for person in market.people.values())
    return Ran(
        versions=published,
        audit=audit,
        shared_paths=len(market.sharing.paths()),
        commands_typed=market.count.typed + again,
        typed_again=again,
        slashes=slashes,
        connections=figures.get("connections", 0),
        connections_lost=figures.get("lost", 0),
        seconds=round(time.monotonic() - began, 1),
    )


if __name__ == "__main__":
    raise SystemExit(main())
