"""The coordinator's API under requests made from its own document, signed or not."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from coordinator.clockwork import Clockwork
from protocol.wire.auth import sign_request
from tests.coordinator.swarm import Swarm


def test_no_request_is_answered_with_a_server_error(
    swarm: Swarm, clockwork: Clockwork, api: str, ask: Callable[..., None]
) -> None:
    clockwork.advance()
    swarm.beat()
    clockwork.advance()
    worker, deployment = swarm.workers[0], swarm.chain.deployment
    assignment = swarm.client(worker).assignments(worker.node)[0]
    leaves = swarm.work(worker, assignment)

    def sign(method: str, path: str, body: bytes) -> Mapping[str, str]:
        nonce, deadline = secrets.randbits(256), int(time.time()) + 60
        return sign_request(
            worker.key, deployment.chain_id, deployment.rounds, method, path, body, nonce=nonce, deadline=deadline
        )

    known = {
        "run": [swarm.run],
        "node": [party.node for party in (*swarm.workers, *swarm.validators)],
        "round_id": [assignment.round],
        "job": [0, 1, 2, 3],
        "root": ["0x" + leaf.root.hex() for leaf in leaves],
        "hash": [swarm.client(worker).run(swarm.run).rules_hash],
    }
    ask("coordinator", api, known, sign)
