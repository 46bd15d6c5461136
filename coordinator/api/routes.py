"""HTTP routes: have requests admitted, then read their bodies, and answer from ``CoordinatorService``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from coordinator.api.bodies import NO_BODY, check_length, mismatch
from coordinator.api.gate import Admission, Caller
from coordinator.api.openapi import BLOB, JSON, PARQUET, answers_file, signed_by_node
from coordinator.api.refusals import forbidden, unreadable
from coordinator.api.service import CoordinatorService
from protocol.wire import api
from protocol.wire.artifact_blob import HEAD_BYTES
from protocol.wire.canonical import validating

CLAIMS = Counter("assize_coordinator_claims", "Submissions stored")

MOST_JSON_BYTES = 256 * 1024
"""Largest JSON body of a request other than evidence."""

LONGEST_WAIT_SECONDS = 30
"""Longest that a request for assignments may wait."""

FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.05, 1.0
"""Time until the first look at an upload that is being examined, doubled with each look, and the longest."""

WHOLE_BYTES = 64 << 10
"""Largest blob that is read at once; a larger one is sent in pieces, each of which costs a change of thread."""

router = APIRouter()
Id = Annotated[int, Path(ge=0, lt=1 << 63)]
OfRun = Annotated[int | None, Query(ge=0, lt=1 << 63)]
Job = Annotated[int, Path(ge=0, le=255)]
Root = Annotated[str, Path(pattern=r"^(0x)?[0-9a-fA-F]{64}$")]
UploadName = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
_Body = TypeVar("_Body", bound=api.Body)


@router.get("/health", response_model_exclude_none=True)  # clients of before know no `runs`
async def health(request: Request) -> api.Health:
    """Report that the process answers and can read its database."""
    return await run_in_threadpool(_service(request).health)


@router.get("/status", response_model_exclude_unset=True)
async def status(request: Request, run: OfRun = None, details: bool = False) -> api.StatusReport:
    """Show live counts of a run, or of the first one; with ``details`` also the offers of nodes and reasons."""
    service = _service(request)
    return await run_in_threadpool(service.status, service.driven(run), details)


@router.get("/runs/{run}")
async def run(request: Request, run: Id) -> api.RunDescription:
    """Describe the run for nodes that take part in it."""
    return await run_in_threadpool(_service(request).describe, run)


@router.get("/rules/{hash}", **answers_file(JSON))
async def rules(request: Request, hash: Root) -> Response:
    """Return the canonical JSON of rules, by hash."""
    return Response(await run_in_threadpool(_service(request).rules, _bytes(hash)), media_type=JSON)


# Earlier versions refuse an answer with fields that they do not know, also where those are null.
@router.post("/heartbeats", openapi_extra=signed_by_node(api.Heartbeat), response_model_exclude_none=True)
async def heartbeats(request: Request) -> api.HeartbeatReply:
    """Renew the node's lease and return its state."""
    caller, heartbeat = await _signed(request, api.Heartbeat)
    if heartbeat.node != caller.node:
        raise forbidden(f"wrong signer: expected node {heartbeat.node} of the heartbeat, not node {caller.node}")
    return await _service(request).heartbeat(caller.run, heartbeat)


@router.get("/nodes/{node}/assignments", openapi_extra=signed_by_node())
async def assignments(
    request: Request, node: Id, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS)] = 0
) -> api.Assignments:
    """List rounds that wait for the node's work; without any, wait up to ``wait`` seconds for one."""
    caller = await _without_body(request)
    if caller.node != node:
        raise forbidden(f"wrong signer: expected node {node}, not node {caller.node}")
    service, until = _service(request), time.monotonic() + wait
    while True:
        turn = service.poller.turn
        found = await run_in_threadpool(service.assignments, caller.run, node)
        left = until - time.monotonic()
        if found.rounds or left <= 0 or service.poller.ended:
            return found
        if not await service.poller.wait(node, turn, left):
            return found


@router.put("/rounds/{round_id}/jobs/{job}/artifact", openapi_extra=signed_by_node(PARQUET))
async def artifact(request: Request, round_id: Id, job: Job) -> api.ArtifactReceipt:
    """Store the artifact of one job."""
    service = _service(request)
    limit = service.settings.max_artifact_bytes
    admission = await _admitted(request, limit)
    upload = (admission.caller, round_id, job)
    await run_in_threadpool(service.artifacts.check_upload, *upload)
    async with service.bodies.received(request, admission, limit) as file:
        root = await service.storing(service.artifacts.store_artifact, *upload, file, admission.body)
    return api.ArtifactReceipt(root=root)


@router.post("/rounds/{round_id}/jobs/{job}/uploads", openapi_extra=signed_by_node(api.UploadRequest))
async def uploads(request: Request, round_id: Id, job: Job) -> api.UploadTicket:
    """Offer an upload of one job's artifact to the object store; 404 where artifacts come to this server."""
    caller, asked = await _signed(request, api.UploadRequest)
    service = _service(request)
    return await service.reaching_store(service.uploads.grant, caller, round_id, job, asked)


@router.post("/uploads/{name}", openapi_extra=signed_by_node())
async def uploaded(
    request: Request, name: UploadName, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS)] = 0
) -> api.UploadTicket:
    """Have an uploaded file examined, and return what came of it; wait up to ``wait`` seconds for that."""
    caller, service = await _without_body(request), _service(request)
    ticket = await run_in_threadpool(service.uploads.told, caller, name)
    until, pause = time.monotonic() + wait, FIRST_LOOK_SECONDS
    while ticket.state == "checking" and time.monotonic() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
        ticket = await run_in_threadpool(service.uploads.ticket, name)
    return ticket


@router.put("/rounds/{round_id}/jobs/{job}/blob", openapi_extra=signed_by_node(BLOB))
async def blob(request: Request, round_id: Id, job: Job) -> api.ArtifactReceipt:
    """Store the blob of a submitted artifact that this coordinator lacks, from a juror."""
    service = _service(request)
    limit = HEAD_BYTES + service.settings.max_artifact_bytes
    admission = await _admitted(request, limit)
    await service.reaching_store(service.intake.check_restoring, admission.caller, round_id, job)
    async with service.bodies.received(request, admission, limit) as file:
        root = await service.storing(service.intake.restore, round_id, job, file)
    return api.ArtifactReceipt(root=root)


@router.post("/rounds/{round_id}/receipts", openapi_extra=signed_by_node(api.ReceiptRequest))
async def receipts(request: Request, round_id: Id) -> api.StoreReceipt:
    """Sign a receipt for the artifacts of a node's leaves."""
    caller, asked = await _signed(request, api.ReceiptRequest)
    service = _service(request)
    return await service.reaching_store(service.intake.receipt, caller, round_id, asked)


@router.post("/rounds/{round_id}/submissions", openapi_extra=signed_by_node(api.SubmissionRequest))
async def submissions(request: Request, round_id: Id) -> api.SubmissionReceipt:
    """Store signed leaves for relaying."""
    service = _service(request)
    caller, submission = await _signed(request, api.SubmissionRequest)
    jobs = await run_in_threadpool(service.intake.store_submission, caller, round_id, submission)
    await run_in_threadpool(service.notifier.notify)
    CLAIMS.inc()
    return api.SubmissionReceipt(round=round_id, jobs=jobs)


@router.get("/artifacts/{root}", **answers_file(BLOB))
async def kept_artifact(request: Request, root: Root, run: OfRun = None) -> Response:
    """Return an artifact's blob: its head, then its file; a signed refusal is for the run, or for the first one."""
    service = _service(request)
    find = partial(service.intake.find_artifact, service.driven(run))
    return await _blob(service, find, _bytes(root), BLOB)


@router.put("/evidence/{root}", openapi_extra=signed_by_node(JSON))
async def evidence(request: Request, root: Root) -> api.EvidenceReceipt:
    """Store a juror's signed evidence."""
    service = _service(request)
    limit = service.settings.max_evidence_bytes
    admission = await _admitted(request, limit)
    await run_in_threadpool(service.intake.check_juror, admission.caller)
    async with service.bodies.received(request, admission, limit) as file:
        await service.storing(service.intake.store_evidence, admission.caller, _bytes(root), file)
    return api.EvidenceReceipt(root=_bytes(root))


@router.get("/evidence/{root}", **answers_file(JSON))
async def kept_evidence(request: Request, root: Root) -> Response:
    """Return a juror's signed evidence, once committing has ended."""
    service = _service(request)
    return await _blob(service, service.intake.find_evidence, _bytes(root), JSON)


def _service(request: Request) -> CoordinatorService:
    service = request.app.state.service
    assert isinstance(service, CoordinatorService)
    return service


async def _admitted(request: Request, limit: int) -> Admission:
    """Admits the request by its head alone; the body, at most ``limit`` bytes, is not read."""
    gate = _service(request).gate
    check_length(request, limit)
    if not gate.is_known(request.headers):
        await run_in_threadpool(gate.check_known, request.headers)
    query = request.scope["query_string"]
    path = (request.scope["raw_path"].split(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")
    return await gate.admit(request.headers, request.method, path, int(time.time()))


async def _without_body(request: Request) -> Caller:
    """Admits a request that has no body."""
    admission = await _admitted(request, 0)
    if admission.body != NO_BODY:
        raise mismatch(NO_BODY, admission.body)
    return admission.caller


async def _signed(request: Request, model: type[_Body]) -> tuple[Caller, _Body]:
    """Admits the request and parses its JSON."""
    admission = await _admitted(request, MOST_JSON_BYTES)
    async with _service(request).bodies.received(request, admission, MOST_JSON_BYTES) as file:
        return admission.caller, _parsed(model, file.read())


async def _blob(
    service: CoordinatorService, find: Callable[[bytes], tuple[int, Iterator[bytes]]], root: bytes, media_type: str
) -> Response:
    """Returns a blob: a small one at once, a larger one to be sent piece by piece, as fast as the client reads."""

    def start() -> tuple[int, Iterator[bytes], bytes]:
        size, pieces = find(root)
        return size, pieces, b"".join(pieces) if size <= WHOLE_BYTES else b""

    size, pieces, whole = await service.reaching_store(start)
    if size <= WHOLE_BYTES:
        return Response(whole, media_type=media_type)

    async def rest() -> AsyncIterator[bytes]:
        while piece := await service.reaching_store(next, pieces, b""):
            yield piece

    return StreamingResponse(rest(), media_type=media_type, headers={"Content-Length": str(size)})


def _parsed(model: type[_Body], body: bytes) -> _Body:
    with validating(model.__name__, unreadable):
        return model.model_validate_json(body)


def _bytes(root: str) -> bytes:
    return bytes.fromhex(root.removeprefix("0x"))
