"""A worker signs what the run's stores gave receipts for, keeps its work until then, and asks no more than it must."""

from __future__ import annotations

import time

import pytest
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from protocol.errors import Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.api import StoreReceipt
from protocol.wire.receipts import Part, missing_receipts
from protocol.wire.rules import with_stores
from tests.conftest import serving
from tests.worker.farm import Farm
from worker.daemon import Worker


def forging(farm: Farm, answer: Response) -> str:
    """The coordinator, but for its receipts; its URL."""

    async def receipts(_: Request) -> Response:
        return answer

    routes = [Route("/rounds/{round}/receipts", receipts, methods=["POST"]), Mount("/", farm.app)]
    return farm.closing.enter_context(serving(Starlette(routes=routes)))


def receipted(farm: Farm, worker: Worker, round_: int) -> bool:
    """Whether every submission that the worker signed carries the receipts that the rules ask for."""
    at, signed = farm.swarm.chain.deployment, list(worker.outbox.submissions(round_))
    assert signed
    parts = [
        Part(at.chain_id, at.rounds, farm.swarm.run, round_, one.node, one.leaves, one.uri, int(time.time()))
        for one in signed
    ]
    return all(missing_receipts(farm.swarm.rules.availability, part) is None for part in parts)


def test_a_submission_carries_a_receipt_that_jurors_accept(farm: Farm) -> None:
    worker = farm.worker()
    assignment = farm.open_round(worker)
    worker.tick()
    assert receipted(farm, worker, assignment.round)


FORGED = StoreReceipt(time=int(time.time()), signature=bytes(64) + b"\x1b").model_dump(mode="json")
STALE = FORGED | {"time": 1}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (JSONResponse({"error": "not now"}, 404), "not now"),
        (JSONResponse(FORGED), "signature"),
        (JSONResponse(STALE), "signature"),
        (JSONResponse({"receipt": 1}), "StoreReceipt"),
    ],
)
def test_without_a_valid_receipt_nothing_is_signed_and_nothing_has_to_be_made_again(
    farm: Farm, answer: Response, words: str
) -> None:
    worker = farm.worker()
    assignment = farm.open_round(worker)
    honest, named = worker.rules, worker.rules.stores[0]
    forger = CoordinatorClient(forging(farm, answer), farm.party.key, worker.chain.chain_id, "0x" + "00" * 20, 1)
    farm.closing.callback(forger.close)
    worker.stores.append(forger)
    worker.rules = with_stores(honest, [named.model_copy(update={"url": forger.base_url})], 1)
    with pytest.raises(Unavailable, match=f"0 of 1 receipts.*{words}"):
        worker.tick()
    assert list(worker.outbox.submissions(assignment.round)) == []
    generated = REGISTRY.get_sample_value("assize_worker_rollouts_total")
    worker.rules = honest
    worker.tick()
    assert receipted(farm, worker, assignment.round)
    assert REGISTRY.get_sample_value("assize_worker_rollouts_total") == generated
