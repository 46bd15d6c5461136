"""Processes killed outright at the moments that matter, stopped, or set to another time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deploy.localnet import services
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.chaos.fault import Afterwards, Moment, fault
from tests.chaos.network import Network

HOUR = 3600
PHASE_SECONDS = 65.0
"""A little more than committing may take."""


@fault(1, "coordinator killed at each of its writes")
def coordinator_at_each_write(network: Network) -> list[str]:
    """At uploads, claims, evidence and heartbeats: before it has the request, while it acts, before it answers."""
    found = []
    for kind, kill in (
        ("/artifact", killed_first),
        ("/artifact", killed_meanwhile),
        ("/artifact", killed_before_answering),
        ("/submissions", killed_meanwhile),
        ("/submissions", killed_before_answering),
        ("/evidence/", killed_before_answering),
        ("/heartbeats", killed_meanwhile),
    ):
        found += killed_at(network, "coordinator", network.api_between, _posts(kind), kill)
    return found


def _posts(kind: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.method in ("PUT", "POST") and kind in asked.path


@fault(5, "worker killed in the middle of a job")
def worker_in_a_job(network: Network) -> list[str]:
    """While it generates, and with artifacts made and none acknowledged."""
    node = network.established.nodes["worker-1"]
    given = Afterwards(
        lambda asked: asked.path.startswith(f"/nodes/{node}/assignments"),
        lambda answer: b'"assignments"' in answer.body,
        lambda: network.kill("worker-1"),
        seconds=1.0,
    )
    found = through(network, network.api_between, given)
    key = network.chain.latest().node(node).key
    first = killed_at(
        network,
        "worker-1",
        network.api_between,
        lambda asked: asked.method == "PUT" and key in asked.headers.values(),
        killed_first,
    )
    return found + first


@fault(6, "validator killed after its verdict, before its transaction")
def validator_before_its_vote(network: Network) -> list[str]:
    """The vote is in its journal, the chain has not heard of it: it is cast once, and it is that one."""
    return killed_at(network, "validator-1", network.rpc_between, simulates("validator-1"), killed_first)


@fault(7, "trainer killed in the middle of a step")
def trainer_in_a_step(network: Network) -> list[str]:
    """While it trains, and with the step made and not announced."""
    fetched = Afterwards(
        lambda asked: asked.method == "GET" and asked.path.startswith("/artifacts/"),
        lambda answer: answer.taken,
        lambda: network.kill("trainer"),
        seconds=0.7,
    )
    found = through(network, network.api_between, fetched)
    return found + killed_at(network, "trainer", network.rpc_between, simulates("trainer"), killed_first)


@fault(8, "relay killed in the middle of a chunk, and its origin")
def relay_in_a_chunk(network: Network) -> list[str]:
    """Half of a chunk is with the worker, half of one with the relay."""
    found = killed_at(network, "relay", network.relay_between, is_chunk, killed_halfway)
    return found + killed_at(network, "relay", network.origin_between, is_chunk, killed_halfway)


def is_chunk(asked: Asked) -> bool:
    """Picks the requests for chunks of weights."""
    return asked.method == "GET" and "chunk" in asked.path


@fault(24, "validators stopped, and one that disagrees")
def validators_cut_off(network: Network) -> list[str]:
    """First two of three are silent for longer than a vote may take, then one condemns whatever it sees."""
    with network.stopped("validator-2", "validator-3"):
        time.sleep(PHASE_SECONDS)
    party = next(party for party in network.parties if party.name == "validator-3")
    faulty = services.node(network.layout, replace(party, adversary="condemns-honest"))
    honest = network.supervisor.services["validator-3"]
    network.supervisor.end("validator-3")
    network.supervisor.start(faulty)
    try:
        network.goes_on(2)
    finally:
        network.supervisor.end("validator-3")
        network.supervisor.start(honest)
    return []


@fault(25, "clocks an hour off")
def clocks_off(network: Network) -> list[str]:
    """A worker's is fast, a validator's slow: the market goes on, and nobody honest is condemned."""
    for name, seconds in (("worker-2", HOUR), ("validator-2", -HOUR)):
        folder = str(Path(__file__).with_name("clock"))
        network.supervisor.more[name] = {"PYTHONPATH": folder, "ASSIZE_CHAOS_CLOCK_SECONDS": str(seconds)}
        network.restart(name)
    try:
        network.goes_on(2)
    finally:
        for name in ("worker-2", "validator-2"):
            del network.supervisor.more[name]
            network.restart(name)
    return []


# How a process is killed

Kill = Callable[[Network, str, Asked, Forward], Answer | None]


def killed_at(network: Network, name: str, where: Between, chosen: Callable[[Asked], bool], kill: Kill) -> list[str]:
    """Kills a process at a request, and starts it again."""
    return through(network, where, Moment(chosen, lambda asked, forward: kill(network, name, asked, forward)))


def through(network: Network, where: Between, moment: Moment) -> list[str]:
    """Strikes at a moment, and starts again whatever fell."""
    with where.interfering(moment):
        found = moment.awaited()
    for fallen in network.fallen():
        network.restart(fallen)
    return found


def killed_first(network: Network, name: str, asked: Asked, forward: Forward) -> Answer | None:
    """Dies before it has the request."""
    network.kill(name)
    return None


def killed_meanwhile(network: Network, name: str, asked: Asked, forward: Forward) -> Answer | None:
    """Dies while it acts on the request."""
    dying = threading.Timer(0.004, network.kill, (name,))
    dying.start()
    try:
        return forward(asked)
    finally:
        dying.join()


def killed_before_answering(network: Network, name: str, asked: Asked, forward: Forward) -> Answer | None:
    """Dies once it has carried the request out, and has not said so."""
    forward(asked)
    network.kill(name)
    return None


def killed_halfway(network: Network, name: str, asked: Asked, forward: Forward) -> Answer | None:
    """Dies in the middle of its answer."""
    answer = forward(asked)
    network.kill(name)
    return replace(answer, body=answer.body[: len(answer.body) // 2], promised=len(answer.body))


def simulates(who: str) -> Callable[[Asked], bool]:
    """Picks the requests with which a sender makes sure of its next transaction."""
    return lambda asked: asked.who == who and "eth_estimateGas" in asked.methods
