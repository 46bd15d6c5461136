"""The coordinator's API under requests made from its own document, signed or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import httpx
import jsonschema_rs

from coordinator.api.examples import EXAMPLES
from coordinator.driver.wiring import DriverProcess
from protocol.wire import api as wire
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


def test_every_body_and_answer_has_an_example_that_its_schema_takes(api: str, http: httpx.Client) -> None:
    document, examples = http.get("/openapi.json").json(), 0
    for operations in document["paths"].values():
        for operation in operations.values():
            for described in (operation.get("requestBody", {}), *operation["responses"].values()):
                for content in described.get("content", {}).values():
                    schema = content["schema"] | {"components": document["components"]}
                    jsonschema_rs.validator_for(schema).validate(content["example"])
                    examples += 1
    assert examples > 150
    for name, example in EXAMPLES.items():
        assert getattr(wire, name).model_validate(example)
