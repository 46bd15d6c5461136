"""The coordinator's API under requests made from its own document, signed or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.driver.wiring import DriverProcess
from tests.coordinator.swarm import Swarm, headers


def test_no_request_is_answered_with_a_server_error(
    swarm: Swarm, driver: DriverProcess, api: str, ask: Callable[..., None]
) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    worker = swarm.workers[0]
    assignment = swarm.client(worker).assignments(worker.node)[0]
    leaves = swarm.work(worker, assignment)

    known = {
        "run": [swarm.run],
        "node": [party.node for party in (*swarm.workers, *swarm.validators)],
        "round_id": [assignment.round],
        "job": [0, 1, 2, 3],
        "root": ["0x" + leaf.root.hex() for leaf in leaves],
        "hash": ["0x" + swarm.client(worker).run(swarm.run).rules_hash.hex()],
    }
    ask("coordinator", api, known, partial(headers, swarm, worker))
