"""An estimate made on the loaded local network, against what that node then earned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.localnet.processes import CHILD_ENVIRONMENT
from protocol.chain.events import CreditsEarned, Log, RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Tail
from protocol.chain.structs import Role, State
from tests.e2e.conftest import ROOT, Network

pytestmark = [pytest.mark.e2e, pytest.mark.long]

WARM, BEFORE, AFTER = 60, 20, 40
"""Rounds of a network that has just been started, whose first are slow; rounds looked at; rounds to come."""
HALF_WIDTH = 0.25


def test_what_a_node_earns_in_the_next_40_rounds_lies_in_the_interval(network: Network, tmp_path: Path) -> None:
    chain = Chain.connect(network.url("chain"), network.root / "addresses.json")
    reader = chain.latest()
    run = reader.run_count()
    network.wait_for("rounds to look at", lambda: _ended(chain, 1, WARM + BEFORE))
    numbers = range(1, reader.node_count() + 1)
    workers = [n for n, each in zip(numbers, reader.nodes(numbers), strict=True) if each.role is Role.WORKER]
    node = workers[0]  # the best of the rounds before would tend to earn less after them
    settings = {"RPC_URL": network.url("chain"), "ADDRESSES": network.root / "addresses.json", "RUN": run}
    settings |= {"COORDINATOR_URL": network.url("coordinator"), "STATE_DIR": tmp_path / "estimate"}
    # As the node itself runs: with more threads than the others leave it cores, it would be ten times slower.
    words = os.environ | CHILD_ENVIRONMENT
    words |= {f"ASSIZE_WORKER_{name}": str(value) for name, value in settings.items()}
    command = [
        sys.executable,
        "assize.py",
        "worker",
        "estimate",
        "--node",
        str(node),
        "--rounds",
        str(BEFORE),
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, env=words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    low, expected, high = (int(told[name]) for name in ("low_wei", "expected_wei", "high_wei"))
    assert high - low <= 2 * HALF_WIDTH * expected, told
    first = reader.round_count() + 1
    network.wait_for("the rounds after it", lambda: _ended(chain, first, first + AFTER - 1), 1800)
    hours = (_opened_at(chain, first + AFTER) - _opened_at(chain, first)) / 3600
    actual = _earned(chain, node, first, first + AFTER - 1) / hours
    chain.close()
    print(f"estimated {low} to {high}, earned {actual:.0f} an hour: {told}")
    assert low <= actual <= high, (actual, told)


def _ended(chain: Chain, first: int, last: int) -> bool:
    """Returns whether these rounds have ended and another one was opened."""
    reader = chain.latest()
    if reader.round_count() <= last:
        return False
    rounds = reader.rounds(range(first, last + 1))
    return all(each.state in (State.SETTLED, State.VOID) for each in rounds)


def _earned(chain: Chain, node: int, first: int, last: int) -> int:
    """Returns the credits of a node in these rounds, from the chain's events."""
    events = (log.event for log in _logs(chain) if isinstance(log.event, CreditsEarned))
    return sum(event.amount for event in events if event.node == node and first <= event.round <= last)


def _opened_at(chain: Chain, round_: int) -> int:
    opened = (log for log in _logs(chain) if isinstance(log.event, RoundOpened) and log.event.round == round_)
    return next(log.timestamp for log in opened)


def _logs(chain: Chain) -> Iterator[Log]:
    return Tail(chain).follow(lambda: Tail(chain))
