"""The coordinator as a store: receipts for what it holds, and for nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import delete

from coordinator.driver.wiring import DriverProcess
from coordinator.store import Store
from coordinator.tables import UploadRow
from protocol.chain.structs import State
from protocol.errors import Rejected, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api as bodies
from protocol.wire import rollout
from protocol.wire.assignments import Leaf, pack_leaves, unpack_leaves
from protocol.wire.receipts import CarriedReceipt, Part, check_receipt, missing_receipts, write_uri
from protocol.wire.rules import ArtifactStore, Availability, encode_rules, with_stores
from tests.conftest import ROOT
from tests.coordinator.swarm import Swarm, artifact, headers


@pytest.fixture
def leaves(swarm: Swarm, assignment: bodies.Assignment) -> bytes:
    """The first worker's leaves, whose artifacts are uploaded."""
    worker, made = swarm.workers[0], []
    for job in assignment.jobs:
        data = rollout.encode(artifact(assignment.round, job, worker.node))
        made.append(Leaf(job, 1_000, swarm.client(worker).upload(assignment.round, job, data)))
    return pack_leaves(made)


def part_of(swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, uri: str = "") -> Part:
    deployment = swarm.chain.deployment
    place = (swarm.run, assignment.round, swarm.workers[0].node, leaves, uri)
    return Part(deployment.chain_id, deployment.rounds, *place, int(time.time()))


def test_a_receipt_is_signed_by_the_coordinators_key_for_exactly_the_leaves_asked_for(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, api: str
) -> None:
    worker = swarm.workers[0]
    given = swarm.client(worker).receipt(assignment.round, worker.node, leaves)
    receipt, part = CarriedReceipt(0, given.time, given.signature), part_of(swarm, assignment, leaves)
    stores = (ArtifactStore(key=swarm.coordinator.address, url=api),)
    check_receipt(receipt, stores, part)
    assert abs(given.time - part.time) < 60
    wanted = Availability(stores=stores, receipts=1)
    assert missing_receipts(wanted, replace(part, uri=write_uri((), [receipt]))) is None
    with pytest.raises(Rejected, match="signed by"):
        check_receipt(receipt, stores, replace(part, leaves=leaves[:41]))


def test_no_receipt_is_given_for_what_was_not_uploaded_or_is_gone(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes
) -> None:
    worker = swarm.workers[0]
    client = swarm.client(worker)
    with pytest.raises(Rejected, match=r"no artifact with the root 0x0+ was uploaded"):
        client.receipt(assignment.round, worker.node, pack_leaves([Leaf(assignment.jobs[0], 1, bytes(32))]))
    root = leaves[9:41].hex()
    (swarm.directory / "coordinator" / "artifacts" / root[:2] / root).unlink()
    with pytest.raises(Rejected, match="is no longer here: upload it again"):
        client.receipt(assignment.round, worker.node, leaves)
    job = assignment.jobs[0]
    client.upload(assignment.round, job, rollout.encode(artifact(assignment.round, job, worker.node)))
    assert client.receipt(assignment.round, worker.node, leaves)


def test_only_the_node_of_the_jobs_gets_a_receipt_and_only_while_the_round_is_open(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, driver: DriverProcess
) -> None:
    worker, other = swarm.workers
    with pytest.raises(Rejected, match="wrong signer"):
        swarm.client(other).receipt(assignment.round, worker.node, leaves)
    with pytest.raises(Rejected, match="not assigned"):
        swarm.client(other).receipt(assignment.round, other.node, leaves)
    with pytest.raises(Rejected, match="no round 99"):
        swarm.client(worker).receipt(99, worker.node, leaves)
    with pytest.raises(Rejected, match="multiple of 41"):
        swarm.client(worker).receipt(assignment.round, worker.node, leaves[:-1])


def test_a_receipt_is_for_a_signed_request_only(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, http: httpx.Client
) -> None:
    path = f"/rounds/{assignment.round}/receipts"
    body = bodies.ReceiptRequest(node=swarm.workers[0].node, leaves=leaves).model_dump_json().encode()
    assert http.post(path, content=body).status_code == 401
    assert http.post(path, content=body, headers=headers(swarm, swarm.workers[0], "POST", path, b"")).status_code == 401
    signed = headers(swarm, swarm.workers[0], "POST", path, body)
    assert http.post(path, content=body, headers=signed).status_code == 200


def test_a_store_that_gave_a_receipt_and_then_refuses_signs_the_proof_against_itself(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, driver: DriverProcess, api: str, tmp_path: Path
) -> None:
    worker, job, root = swarm.workers[0], assignment.jobs[0], leaves[9:41].hex()
    client, stores = swarm.client(worker), [ArtifactStore(key=swarm.coordinator.address, url=api)]
    given = client.receipt(assignment.round, worker.node, leaves)
    uri = write_uri((f"{api}/artifacts/",), [CarriedReceipt(0, given.time, given.signature)])
    made = list(unpack_leaves(leaves))
    client.submit(assignment.round, swarm.submission(worker, assignment, made, uri=uri))
    driver.tick()
    assert swarm.chain.latest().round(assignment.round).submitted
    (tmp_path / "named.json").write_bytes(encode_rules(with_stores(swarm.rules, stores, 1)))
    found = tmp_path / "found"
    words = ("collect", assignment.round, job, found, "--rules", tmp_path / "named.json", "--json")
    (row,) = json.loads(receipts(swarm, *words).stdout)
    assert row["answer"] == "serves the artifact"
    proof = receipts(swarm, "check", row["file"], "--json")
    assert (proof.returncode, json.loads(proof.stdout)["contradiction"]) == (0, False)
    lost = swarm.directory / "coordinator" / "artifacts" / root[:2] / root
    data = lost.read_bytes()
    lost.unlink()
    (row,) = json.loads(receipts(swarm, *words).stdout)
    assert row["answer"] == "refuses, over its signature"
    proof = receipts(swarm, "check", row["file"])
    assert (proof.returncode, "contradiction" in proof.stdout) == (0, True), proof.stderr
    restored_by_a_juror(swarm, assignment, driver, data)
    assert client.artifact(bytes.fromhex(root))
    framed = json.loads(Path(row["file"]).read_text()) | {"store": worker.key.address}
    Path(row["file"]).write_text(json.dumps(framed))
    proof = receipts(swarm, "check", row["file"])
    assert (proof.returncode, "the receipt is signed by" in proof.stderr) == (1, True)
    assert receipts(swarm, "check", tmp_path / "nothing").returncode == 2
    for job, sentence in ((3, "carries no receipts"), (9, "was not submitted")):
        missing = receipts(swarm, "collect", assignment.round, job, found, "--rules", tmp_path / "named.json")
        assert (missing.returncode, sentence in missing.stderr) == (1, True), missing.stderr


def test_a_store_whose_database_is_lost_serves_what_it_gave_a_receipt_for(
    swarm: Swarm, assignment: bodies.Assignment, leaves: bytes, api: str
) -> None:
    client = swarm.client(swarm.workers[0])
    client.receipt(assignment.round, swarm.workers[0].node, leaves)
    database = Store(swarm.settings().database)
    with database.writing() as session:
        session.exec(delete(UploadRow))
    database.close()
    for leaf in unpack_leaves(leaves):
        assert client.artifact(leaf.root)


def restored_by_a_juror(swarm: Swarm, assignment: bodies.Assignment, driver: DriverProcess, blob: bytes) -> None:
    """A juror puts back what the store has lost, and nothing else; nobody else does."""
    round_, job, juror = assignment.round, assignment.jobs[0], swarm.client(swarm.validators[0])
    for client in (swarm.client(swarm.workers[0]), juror):
        with pytest.raises(Rejected, match="has no seat in any round"):
            restore(client, round_, job, blob)
    swarm.work(swarm.workers[1], swarm.client(swarm.workers[1]).assignments(swarm.workers[1].node)[0])
    for _ in range(50):
        driver.tick()
        if swarm.chain.latest().round(round_).state is State.VOTING:
            break
    driver.tick()
    for junk in (b"", blob[:-1], blob + b"x"):
        with pytest.raises(Rejected, match="not those of the artifact"):
            restore(juror, round_, job, junk)
    with pytest.raises(Rejected, match="was not submitted"):
        restore(juror, round_, 200, blob)
    restore(juror, round_, job, blob)
    with pytest.raises(Rejected, match="is here already"):
        restore(juror, round_, job, blob)


def restore(client: CoordinatorClient, *upload: Any) -> None:
    """Sends a blob, again where the answer is lost: a refusal closes the connection before the body is read."""
    for left in reversed(range(20)):
        try:
            client.restore(*upload)
            return
        except Unavailable:
            if not left:
                raise


def receipts(swarm: Swarm, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs ``assize receipts`` as a person would."""
    where = {"ASSIZE_RPC_URL": swarm.anvil.url, "ASSIZE_ADDRESSES": str(swarm.directory / "addresses.json")}
    line = [sys.executable, "-m", "assize", "receipts", *map(str, words)]
    return subprocess.run(line, cwd=ROOT, env=os.environ | where, capture_output=True, text=True, timeout=60)
