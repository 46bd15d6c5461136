"""``make network``: the market over a network of hosts; at the end a line of JSON, and exit 1 if a rule was broken."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.network.ground import forbidden, ground, missing_programs
from tests.network.market import HOSTS, Market
from tests.network.people import Count, clocked
from tests.network.plan import Plan


@dataclass(frozen=True, slots=True)
class Outcome:
    """A market's run."""

    versions: int
    audit: str
    shared_paths: int
    commands_typed: int
    seconds: float
    slashed: int
    connections: int
    connections_lost: int
    typed_again: int


def main() -> int:
    """Runs the market, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--plain", action="store_true", help="plain processes, as where namespaces are forbidden")
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
    began = time.monotonic()
    outcome = run(given.versions, separate, began, given.model)
    print(json.dumps(asdict(outcome)))
    fine = outcome.versions >= given.versions and outcome.audit == "ok" and outcome.slashed > 0
    return 0 if fine and outcome.shared_paths == 0 else 1


def run(versions: int, separate: bool, began: float, model: Path | None) -> Outcome:
    """Runs the market to its last version, and audits it."""
    say = clocked(began)
    with ground(lambda prefix: Plan(HOSTS, prefix), separate) as laid, ExitStack() as opened:
        count = Count(say)
        market = Market(laid, opened, count, versions, model)
        market.start()
        published, slashed = market.watch()
        audit = market.audit()
        market.look()
        for path in market.sharing.paths():
            say(f"shared: {path}")
        figures, again = laid.counts(), sum(person.typed_again for person in market.people.values())
        return Outcome(
            published,
            audit,
            len(market.sharing.paths()),
            count.typed + again,
            round(time.monotonic() - began, 1),
            slashed,
            figures.get("connections", 0),
            figures.get("lost", 0),
            again,
        )


if __name__ == "__main__":
    raise SystemExit(main())
