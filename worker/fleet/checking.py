"""``assize worker fleet --check``: every node's doctor, in a process with what the fleet gives out to the node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from protocol.node.doctor import Result
from worker.fleet.fleet_file import Fleet, FleetNode
from worker.fleet.restarts import reason_of


def check_fleet(fleet: Fleet) -> Iterator[Result]:
    """Yields the findings of each node's doctor, one node after the other."""
    for node in fleet.nodes:
        yield from _findings(fleet, node)


def _findings(fleet: Fleet, node: FleetNode) -> Iterator[Result]:
    words = fleet.worker_words("doctor", "--json")
    done = subprocess.run(
        words, env=node.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    try:
        rows = json.loads(done.stdout)
    except ValueError:  # it ended before it had examined anything
        yield Result(f"{node.name}: doctor", False, reason_of(done.stderr.splitlines(), done.returncode))
        return
    for row in rows:
        yield Result(f"{node.name}: {row['check']}", row["ok"], row["found"], row["mend"])
