"""Weights sent slowly or falsely, missing bases of deltas, full disks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.chaos.between import Answer, Asked, Forward
from tests.chaos.fault import MOMENT_SECONDS, fault
from tests.chaos.network import Network
from tests.chaos.starving import FULL_SECONDS
from tests.chaos.watching import fines_since, newest_round

WORKERS = ("worker-1", "worker-2")
HOLDERS = ("worker-1", "validator-1", "relay")
VERSIONS = 3
"""New versions that must come while one of two relays drips or lies."""
RESTING_SECONDS = 150.0
"""Longer than a failed source rests."""


@fault(31, "a relay that drips weights")
def dripping_relay(network: Network) -> list[str]:
    """One of two relays sends chunks and frames at ten bytes a second; whoever waits for it asks the other."""
    return _beside_bad_relay(network, lambda answer: replace(answer, dripped=True))


@fault(32, "a relay that lies about weights")
def lying_relay(network: Network) -> list[str]:
    """A bit of every chunk and frame from one of two relays is flipped; the logs name it, and not the other."""
    before = {name: len(network.log(name)) for name in WORKERS}

    def named(url: str) -> bool:
        new = (line for name in WORKERS for line in network.log(name)[before[name] :].splitlines())
        return any("source_lied" in line and url in line for line in new)

    found = _beside_bad_relay(network, _flipped, lambda: named(network.relay_between.url))
    return [*found, *(["a worker names a relay that did not lie"] if named(network.spare_between.url) else [])]


def _flipped(answer: Answer) -> Answer:
    middle = len(answer.body) // 2
    return replace(answer, body=answer.body[:middle] + bytes([answer.body[middle] ^ 1]) + answer.body[middle + 1 :])


def _beside_bad_relay(
    network: Network, worsened: Callable[[Answer], Answer], seen: Callable[[], bool] = lambda: True
) -> list[str]:
    """Worsens the chunks of the first relay for some versions, which the workers must hold, and until ``seen``."""
    first, relay = newest_round(network), _Bad(worsened)
    with network.relay_between.interfering(relay):
        network.goes_on(VERSIONS)
        wanted = network.version()
        network.wait_for(
            f"version {wanted} at both workers",
            lambda: all(_newest_held(network, name) >= wanted for name in WORKERS),
            MOMENT_SECONDS,
        )
        network.wait_for("a worker that names the relay", seen, RESTING_SECONDS)
    found = [] if relay.asked else ["nobody asked the bad relay"]
    return [*found, *fines_since(network, first)]


class _Bad:
    """Answers requests for chunks and frames with something worse; ``asked`` is how often."""

    def __init__(self, worsened: Callable[[Answer], Answer]) -> None:
        self._worsened, self.asked = worsened, 0

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if not asked.path.startswith("/chunks/") or not answer.body:
            return answer
        self.asked += 1
        return self._worsened(answer)


@fault(33, "the base of a delta missing")
def base_missing(network: Network) -> list[str]:
    """A worker, a validator and the relay lose every version they hold; the next ones come all the same."""
    first = newest_round(network)
    lost = sum(_lose(directory) for name in HOLDERS for directory in _held(network, name))
    found = [] if lost else ["nobody held a version"]
    network.goes_on(2)
    wanted = network.version()
    network.wait_for(
        f"version {wanted} at all who had lost theirs",
        lambda: all(_newest_held(network, name) >= wanted for name in HOLDERS),
        MOMENT_SECONDS,
    )
    found += [f"{name} ended, its versions being gone" for name in network.fallen()]
    return [*found, *fines_since(network, first)]


def _lose(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


@fault(34, "no room for weights")
def no_room_for_weights(network: Network) -> list[str]:
    """No file of a relay, a worker, a validator or the trainer can grow: nobody ends, and no bond is lost."""
    first = newest_round(network)
    with network.without_disk(*HOLDERS, "trainer"):
        time.sleep(FULL_SECONDS)
    found = [f"{name} ended, its disk being full" for name in network.fallen()]
    for name in network.fallen():
        network.restart(name)
    return [*found, *fines_since(network, first)]


def _held(network: Network, name: str) -> list[Path]:
    """Directories of whole versions that a process holds."""
    state = network.layout.state(name)
    found = [path for pattern in ("runs/*/[0-9]*", "*/runs/*/[0-9]*") for path in state.glob(pattern)]
    return [path for path in found if path.is_dir() and path.suffix != ".partial"]


def _newest_held(network: Network, name: str) -> int:
    return max((int(path.name.partition("-")[0]) for path in _held(network, name)), default=-1)
