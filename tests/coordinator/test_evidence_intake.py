"""Evidence at the coordinator: from seats only, a few bundles each, and not before it may be read."""

from __future__ import annotations

import time

import httpx
import pytest

from coordinator.api.intake import MOST_BUNDLES
from coordinator.driver.wiring import DriverProcess
from protocol.chain.structs import State
from protocol.errors import Rejected
from protocol.wire import evidence
from protocol.wire.evidence import Evidence
from tests.coordinator.swarm import MANIFEST_ROOT, Party, Swarm, headers

ATTEMPT = 0


def bundle(swarm: Swarm, juror: Party, which: int, round_: int = 1) -> evidence.SignedEvidence:
    deployment = swarm.chain.deployment
    made = Evidence(
        chain_id=deployment.chain_id,
        rounds=deployment.rounds,
        run=swarm.run,
        round=round_,
        attempt=ATTEMPT,
        juror=juror.node,
        policy_version=0,
        manifest_root=MANIFEST_ROOT,
        rules_hash=bytes(32),
        thresholds={"toploc": float(which)},
        jobs=(),
    )
    return evidence.sign(made, juror.key)


def put(swarm: Swarm, juror: Party, which: int, round_: int = 1) -> bytes:
    signed = bundle(swarm, juror, which, round_)
    swarm.client(juror).put_evidence(signed.evidence.root, signed.canonical)
    return signed.evidence.root


def test_a_seat_has_room_for_few_bundles_and_a_node_without_one_for_none(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    juror, worker = swarm.validators[0], swarm.workers[0]
    driver.tick()
    with pytest.raises(Rejected, match="no seat in any round"):
        put(swarm, juror, 0)
    swarm.beat()
    driver.tick()
    for each in swarm.workers:
        swarm.work(each, swarm.client(each).assignments(each.node)[0])
    driver.tick()
    assert swarm.chain.latest().round(1).state is State.VOTING
    assert juror.node in {seat.node for seat in swarm.chain.latest().seats(1)}

    assert swarm.chain.latest().round(1).attempt == ATTEMPT
    roots = [put(swarm, juror, which) for which in range(MOST_BUNDLES)]
    with pytest.raises(Rejected, match=f"already has {MOST_BUNDLES} different bundles"):
        put(swarm, juror, MOST_BUNDLES)
    assert put(swarm, juror, 0) == roots[0], "the same again is the same"
    assert put(swarm, swarm.validators[1], 0) != roots[0], "another seat has room of its own"
    with pytest.raises(Rejected, match="no seat in round 2"):
        put(swarm, juror, 0, round_=2)
    with pytest.raises(Rejected, match="once committing has ended"):
        swarm.client(juror).evidence(roots[0])

    path = f"/evidence/0x{roots[0].hex()}"
    started = time.monotonic()
    with httpx.Client(base_url=api, trust_env=False) as http:
        endless = (b"x" * 1024 for _ in iter(lambda: time.sleep(0.2), 0))
        answer = http.put(path, content=endless, headers=headers(swarm, worker, "PUT", path, b"x"))
    assert answer.status_code == 403, "a node that never judged is refused before its body is read"
    assert time.monotonic() - started < 5
