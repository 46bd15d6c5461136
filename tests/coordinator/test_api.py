"""The HTTP API as nodes, strangers and attackers meet it."""

from __future__ import annotations

import secrets
import socket
import threading
import time

import httpx
import pytest
import redis
from prometheus_client import REGISTRY

from coordinator.driver.wiring import DriverProcess
from protocol.errors import Rejected
from protocol.transport.request_times import SECONDS
from protocol.wire import api as bodies
from protocol.wire import rollout
from protocol.wire.assignments import Leaf
from tests.coordinator.swarm import Party, Swarm, artifact, headers


def refused(response: httpx.Response, status: int, *words: str) -> None:
    """Asserts the status and one sentence that has these words."""
    assert response.status_code == status, response.text
    sentence = bodies.ErrorBody.model_validate_json(response.content).error
    assert all(word in sentence for word in words), sentence


def test_a_replayed_request_is_refused_also_after_redis_forgot_everything(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    worker, path = swarm.workers[0], f"/nodes/{swarm.workers[0].node}/assignments?wait=0"
    signed = headers(swarm, worker, "GET", path, b"")
    assert http.get(path, headers=signed).status_code == 200
    refused(http.get(path, headers=signed), 409, "nonce")
    client = redis.Redis.from_url(swarm.redis_url)
    client.flushall()
    client.close()
    refused(http.get(path, headers=signed), 409, "nonce")


def test_a_request_holds_for_its_method_path_body_and_time_only(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    worker, path = swarm.workers[0], f"/nodes/{swarm.workers[0].node}/assignments?wait=0"
    refused(http.get(path), 401, "no node is registered")
    refused(http.get(path, headers=headers(swarm, worker, "POST", path, b"")), 401, "signature")
    refused(http.get(path, headers=headers(swarm, worker, "GET", path[:-1] + "1", b"")), 401, "signature")
    refused(http.get(path, headers=headers(swarm, worker, "GET", path, b"x")), 401, "signature")
    elsewhere = headers(swarm, worker, "GET", path, run=swarm.run + 1)
    refused(http.get(path, headers=elsewhere), 401, f"run {swarm.run + 1}, this is the one of run {swarm.run}")
    refused(http.get(path, headers=headers(swarm, worker, "GET", path, b"", deadline=1)), 401, "deadline")
    other = headers(swarm, swarm.workers[1], "GET", path, b"")
    refused(http.get(path, headers=other), 403, f"expected node {worker.node}, not node {swarm.workers[1].node}")


def test_bad_artifacts_are_each_refused_with_a_sentence(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    worker, job = swarm.workers[0], assignment.jobs[0]
    path = f"/rounds/{assignment.round}/jobs/{job}/artifact"
    good = rollout.encode(artifact(assignment.round, job, worker.node))

    def put(data: bytes, where: str = path, party: Party = worker) -> httpx.Response:
        return http.put(where, content=data, headers=headers(swarm, party, "PUT", where, data))

    refused(put(secrets.token_bytes(5_000)), 422, "artifact")
    refused(put(b""), 422, "artifact")
    refused(put(good[:-1]), 422, "artifact")
    refused(put(rollout.encode(artifact(9, job, worker.node))), 422, "round 9")
    refused(put(rollout.encode(artifact(assignment.round, job, worker.node, b"\x07" * 32))), 422, "version 0")
    refused(put(good, party=swarm.workers[1]), 403, "not assigned")
    refused(put(good, where="/rounds/99/jobs/0/artifact"), 404, "no round 99")
    refused(put(good, where=f"/rounds/{1 << 80}/jobs/0/artifact"), 422, "round_id")
    refused(put(good, where="/rounds/1/jobs/256/artifact"), 422, "job")
    assert put(good).status_code == 200
    assert put(good).status_code == 200, "the same bytes again are the same artifact"


def test_an_upload_of_two_gigabytes_is_refused_before_it_is_sent(
    swarm: Swarm, assignment: bodies.Assignment, api: str
) -> None:
    path = f"/rounds/{assignment.round}/jobs/{assignment.jobs[0]}/artifact"
    signed = headers(swarm, swarm.workers[0], "PUT", path, b"")
    lines = [f"PUT {path} HTTP/1.1", "Host: x", f"Content-Length: {2 << 30}"]
    lines += [f"{name}: {value}" for name, value in signed.items()]
    host, port = api.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 413")
    assert "at most" in answer


def test_a_chunked_upload_over_the_limit_is_refused_while_it_streams(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    path = "/heartbeats"
    signed = headers(swarm, swarm.workers[0], "POST", path, b"")
    refused(http.post(path, content=(b"x" * 65536 for _ in range(8)), headers=signed), 413, "at most")


def test_leaves_are_taken_only_from_the_jobs_node_with_its_signature_and_artifacts(
    swarm: Swarm, assignment: bodies.Assignment
) -> None:
    worker, other = swarm.workers
    client, job = swarm.client(worker), assignment.jobs[0]
    root = client.upload(assignment.round, job, rollout.encode(artifact(assignment.round, job, worker.node)))

    def submit(leaves: list[Leaf], signer: Party | None = None, **changes: object) -> bodies.SubmissionReceipt:
        request = swarm.submission(worker, assignment, leaves, signer.key if signer else None)
        return client.submit(assignment.round, request.model_copy(update=changes))

    with pytest.raises(Rejected, match="wrong signature: expected the node's key"):
        submit([Leaf(job, 1, root)], signer=other)
    with pytest.raises(Rejected, match="not assigned"):
        submit([Leaf(3, 1, root)])
    with pytest.raises(Rejected, match="no artifact"):
        submit([Leaf(job, 1, bytes(32))])
    with pytest.raises(Rejected, match="wrong signature: expected the node's key"):
        submit([Leaf(job, 1, root)], uri="http://elsewhere.example/")
    with pytest.raises(Rejected, match="multiple of 41"):
        submit([])
    assert submit([Leaf(job, 1, root)]).jobs == [job]
    assert submit([Leaf(job, 1, root)]).jobs == [job], "the same leaves again are the same claim"
    with pytest.raises(Rejected, match="other leaves"):
        submit([Leaf(job, 2, root)])


def test_a_waiting_worker_hears_of_a_new_round_at_once(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    swarm.beat()
    worker = swarm.workers[0]
    assert swarm.client(worker).assignments(worker.node) == []
    opener = threading.Timer(0.3, driver.tick)
    opener.start()
    started = time.monotonic()
    found = swarm.client(worker).assignments(worker.node, wait_seconds=30)
    waited = time.monotonic() - started
    opener.join()
    assert found
    assert waited < 15, "not at the end of the wait"


def test_heartbeats_say_what_keeps_a_node_from_being_listed(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    worker = swarm.workers[0]
    reply = swarm.client(worker).heartbeat(bodies.Heartbeat(node=worker.node, version=None))
    assert reply == bodies.HeartbeatReply(state="unlisted", reasons=["has no weights loaded yet"])
    assert swarm.client(worker).heartbeat(bodies.Heartbeat(node=worker.node, version=0)).state == "alive"


def test_the_run_its_rules_and_uploads_are_public(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    client, worker, job = swarm.client(swarm.workers[0]), swarm.workers[0], assignment.jobs[0]
    described = client.run(swarm.run)
    assert described.chain.rounds == swarm.chain.deployment.rounds
    assert client.rules(described.rules_hash)
    told = http.get("/").json()
    assert told["service"] == "Assize coordinator"
    assert {"/status", "/openapi.json"} <= set(told["paths"])
    assert http.get("/docs").status_code == 404
    data = rollout.encode(artifact(assignment.round, job, worker.node))
    root = client.upload(assignment.round, job, data)
    assert client.artifact(root) == data
    refused(http.get(f"/artifacts/0x{'00' * 32}"), 404, "no artifact")
    refused(http.get("/artifacts/elephant"), 422, "root")
    refused(http.get("/runs/77"), 404, "run 77")
    refused(http.get("/nowhere"), 404, "Not Found")
    refused(http.delete("/status"), 405, "Method Not Allowed")
    assert http.get("/metrics").status_code == 404, "they are on a port of their own"
    assert http.get("/openapi.json").status_code == 200


def test_bodies_that_are_no_json_or_have_unknown_fields_are_refused(
    swarm: Swarm, assignment: bodies.Assignment, http: httpx.Client
) -> None:
    for body in (b"", b"{", b"[]", b'{"node": 1, "version": 0, "more": 1}', b"\xff", b'{"node": -1, "version": 0}'):
        signed = headers(swarm, swarm.workers[0], "POST", "/heartbeats", body)
        refused(http.post("/heartbeats", content=body, headers=signed), 422, "Heartbeat")


def test_requests_are_timed_by_route_and_strangers_add_no_series(swarm: Swarm, http: httpx.Client) -> None:
    def counted(route: str, status: str) -> float:
        return REGISTRY.get_sample_value("assize_http_request_seconds_count", {"route": route, "status": status}) or 0.0

    before = counted("/runs/{run}", "4"), counted("unknown", "4")
    for number in range(20):
        http.get(f"/runs/{1000 + number}")
        http.request("SECRET", f"/nowhere-{number}?token={number}")
    assert counted("/runs/{run}", "4") == before[0] + 20
    assert counted("unknown", "4") == before[1] + 20
    routes = {sample.labels["route"] for metric in SECONDS.collect() for sample in metric.samples}
    assert not any("nowhere" in route or "token" in route for route in routes)
