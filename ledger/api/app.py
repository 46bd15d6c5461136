"""The ledger over HTTP: without a key, described by OpenAPI, wei and other wide numbers as strings.

Lists come in pages (``limit``, ``after``); every page names the block it holds for, and the newest that is final.
Whoever asks for the next page ``as_of`` that block's hash reads one list while the chain goes on: until the block is
final, or a 404 or 409 says that a reorganisation undid it. Other answers carry the newest block's hash as their entity
tag: who has one already asks with ``If-None-Match``, and gets a 304 without a body. Errors are ``{"error": sentence}``.
Artifacts and evidence come as raw bytes from the coordinators that the operator named (``ledger.api.blobs``).
A request that prefers HTML is answered by the explorer's page of the same address instead (``ledger.explorer``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from eth_utils import to_checksum_address
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ledger.api.actions import add_actions
from ledger.api.blobs import BlobKind, BlobSource
from ledger.api.bodies import DETECTION, AuditAnswer, Detection, Error, LedgerHealth, Page
from ledger.api.parameters import (
    After,
    Asked,
    EventName,
    Filter,
    Id,
    InBlock,
    Limit,
    Owner,
    Root,
    Since,
    Sought,
    TxHash,
    code_of,
)
from ledger.api.service import LedgerService, Snapshot, Story
from ledger.explorer.app import create_pages
from ledger.explorer.negotiation import BLOBS, Negotiator
from ledger.explorer.rendering import FOREVER
from ledger.facts import Appeal, Checkpoint, Credit, CreditEntry, Node, Round, Run, Service, Slash
from ledger.queries import lookup
from ledger.queries.fairness import Share
from ledger.queries.lineage import Lineage, lineage
from ledger.queries.named_bytes import names_artifact, names_rules, signers_of
from ledger.queries.search import Hit, TransactionStory, search, transaction_story
from ledger.queries.verdicts import NodeVerdict
from ledger.queries.why import Explanation, why_entry, why_job
from ledger.store.database import Database
from ledger.store.follower import Follower
from ledger.store.rows import find_fact
from protocol.chain.reading.client import Chain
from protocol.errors import AssizeError
from protocol.transport.index import add_index
from protocol.transport.request_times import RequestTimes

if TYPE_CHECKING:
    from ledger.api.published import PublishedVersions

UNTAGGED = ("/health", "/audit", "/openapi.json", "/")
"""Answers that hold more than what the database says of a block."""


def create_app(
    chain: Chain,
    database: Database,
    follower: Follower,
    *,
    blobs: BlobSource | None = None,
    published: PublishedVersions | None = None,
    actions: bool = False,
) -> FastAPI:
    """Returns the API; it starts ``follower`` and stops it with itself.

    Without ``blobs`` and ``published``, the latter started here too, it has no bytes that are not on the chain. With
    ``actions`` it offers calls to wallets.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        follower.start()
        if published is not None:
            published.start()
        yield
        follower.stop()

    refusals: dict[int | str, dict[str, Any]] = {code: {"model": Error} for code in (400, 404, 409, 410, 422, 503)}
    app = FastAPI(
        title="Assize ledger", version="1", lifespan=lifespan, responses=refusals, docs_url=None, redoc_url=None
    )
    _say_errors(app)
    service = LedgerService(chain, database, follower, blobs or BlobSource(), published, actions)
    app.state.service = service
    _lists(app)
    _stories(app)
    _bytes(app, service)
    _checks(app, service)
    add_actions(app, chain, actions)
    _tag_answers(app, service)
    add_index(app, app.title, lambda: (*app.openapi()["paths"], "/openapi.json"))
    pages = create_pages(service)
    app.state.live = pages.state.live
    app.add_middleware(Negotiator, pages=pages)
    app.add_middleware(RequestTimes)
    return app


def _lists(app: FastAPI) -> None:
    @app.get("/credits", summary="What every owner holds")
    def credits(view: Asked, limit: Limit = 100, after: After = None) -> Page[Credit]:
        return view.page(Credit, after, limit)

    @app.get("/credits/{owner}/entries", summary="Every movement of an owner's credits")
    def entries(view: Asked, owner: Owner, limit: Limit = 100, after: After = None) -> Page[CreditEntry]:
        return view.page(CreditEntry, after, limit, owner=to_checksum_address(owner))

    @app.get("/rounds", summary="Rounds, oldest first")
    def rounds(view: Asked, limit: Limit = 100, after: After = None, run: Filter = None) -> Page[Round]:
        return view.page(Round, after, limit, run=run)

    @app.get("/nodes", summary="Nodes and their bonds")
    def nodes(view: Asked, limit: Limit = 100, after: After = None) -> Page[Node]:
        return view.page(Node, after, limit)

    @app.get("/nodes/{node}", summary="One node, its bond, memberships and slashes")
    def node(view: Asked, node: Id) -> lookup.NodeStory:
        return view.story(f"node {node}", lambda connection: lookup.node_story(connection, node))

    @app.get("/nodes/{node}/verdicts", summary="Verdicts on a node's jobs, and the jurors' reasons")
    def verdicts(view: Asked, node: Id, limit: Limit = 100, after: After = None, since: Since = 0) -> Page[NodeVerdict]:
        return view.verdicts(node, since, after, limit)

    @app.get("/runs", summary="Runs and their escrow")
    def runs(view: Asked, limit: Limit = 100, after: After = None) -> Page[Run]:
        return view.page(Run, after, limit)

    @app.get("/checkpoints", summary="Published weights")
    def checkpoints(view: Asked, limit: Limit = 100, after: After = None, run: Filter = None) -> Page[Checkpoint]:
        return view.page(Checkpoint, after, limit, run=run)

    @app.get("/appeals", summary="Verdicts disputed, and what came of it")
    def appeals(view: Asked, limit: Limit = 100, after: After = None, round: Filter = None) -> Page[Appeal]:
        return view.page(Appeal, after, limit, round=round)

    @app.get("/slashes", summary="Bonds slashed, and why")
    def slashes(view: Asked, limit: Limit = 100, after: After = None, node: Filter = None) -> Page[Slash]:
        return view.page(Slash, after, limit, node=node)

    @app.get("/events", summary="Raw events as the chain emitted them")
    def events(
        view: Asked, limit: Limit = 100, after: After = None, name: EventName = None, round: Filter = None
    ) -> Page[lookup.EventRecord]:
        return view.events(after, limit, name, round)


def _stories(app: FastAPI) -> None:
    @app.get("/credits/{owner}", summary="One owner: credits, nodes, slashes")
    def credit(view: Asked, owner: Owner) -> lookup.CreditStory:
        address = to_checksum_address(owner)
        return view.story(f"owner {address}", lambda connection: lookup.credit_story(connection, address))

    @app.get("/rounds/{round}", summary="All that happened in one round")
    def round_(view: Asked, round: Id) -> lookup.RoundStory:
        return view.story(f"round {round}", lambda connection: lookup.round_story(connection, round))

    @app.get("/runs/{run}", summary="One run, its members and checkpoints")
    def run(view: Asked, run: Id) -> lookup.RunStory:
        return view.story(f"run {run}", lambda connection: lookup.run_story(connection, run))

    @app.get("/checkpoints/{run}/{version}", summary="One checkpoint and what it was trained on")
    def checkpoint(view: Asked, run: Id, version: Id) -> lookup.CheckpointStory:
        what = f"version {version} of run {run}"
        return view.story(what, lambda connection: lookup.checkpoint_story(connection, run, version))

    @app.get("/why/jobs/{round}/{job}", summary="Everything that led to what became of a job")
    def why_a_job(view: Asked, round: Id, job: Id) -> Explanation:
        return view.story(f"job {job} in a round {round}", lambda connection: why_job(connection, round, job))

    @app.get("/why/entries/{block}/{log}", summary="Everything that led to a movement of credits, or a slash")
    def why_an_entry(view: Asked, block: Id, log: Id) -> Explanation:
        what = f"credit or slash at {block}:{log}"
        return view.story(what, lambda connection: why_entry(connection, block, log))

    @app.get("/lineage/{run}/{version}", summary="What a checkpoint stands on")
    def line(view: Asked, run: Id, version: Id) -> Lineage:
        what = f"version {version} of run {run}"
        return view.story(what, lambda connection: lineage(connection, run, version))

    @app.get("/validators", summary="Every validator's seats, votes and absences")
    def validators(view: Asked, limit: Limit = 100, after: After = None) -> Page[Service]:
        return view.page(Service, after, limit)

    @app.get("/fairness", summary="Every worker's share of the jobs against its due")
    def shares(view: Asked, limit: Limit = 100, after: After = None) -> Page[Share]:
        return view.shares(after, limit)

    @app.get("/detection", summary="Jobs until steered rewards are found, in a simulated market")
    def detection() -> Detection:
        return DETECTION

    @app.get("/transactions/{tx}", summary="The events of one transaction")
    def transaction(view: Asked, tx: TxHash, block: InBlock = None) -> TransactionStory:
        what = f"transaction {tx} among the contracts' events"
        place = view.ledger.located(tx) if block is None else block
        return view.story(what, lambda connection: transaction_story(connection, tx, place))

    @app.get("/search", summary="What is known by a number, an address or a hash")
    def searched(view: Asked, q: Sought) -> tuple[Hit, ...]:
        place = view.ledger.located(q, needed=False)
        return view.story(f"answer to {q}", lambda connection: search(connection, q, place))

    @app.get("/treasury", summary="What was slashed, and what became of it")
    def treasury(view: Asked) -> lookup.TreasuryStory:
        return view.story("treasury", lookup.treasury_story)


def _bytes(app: FastAPI, service: LedgerService) -> None:
    def answered(kind: BlobKind, root: str, signers: tuple[str, ...] = ()) -> Response:
        data = service.blobs.get(kind, bytes.fromhex(root[2:]), signers=signers)
        kept = FOREVER | ({"Cache-Control": "no-cache"} if kind == "evidence" else {})  # of it another copy is as good
        return Response(data, media_type="application/octet-stream", headers=kept)

    def sought(view: Snapshot, kind: str, root: str, ask: Callable[[Connection, bytes], Story]) -> Story:
        """Asks the database first, so that no stranger's number becomes a request to a coordinator."""
        with view.reading() as connection:
            found = ask(connection, bytes.fromhex(root[2:]))
        if not found:
            raise HTTPException(404, f"the chain names no {kind} {root.lower()}")
        return found

    raw: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}

    @app.get(BLOBS + "artifacts/{root}", summary="An artifact's head and file", response_class=Response, responses=raw)
    def artifact(view: Asked, root: Root) -> Response:
        sought(view, "artifact", root, names_artifact)
        return answered("artifact", root)

    @app.get(BLOBS + "evidence/{root}", summary="A juror's signed evidence", response_class=Response, responses=raw)
    def evidence(view: Asked, root: Root) -> Response:
        return answered("evidence", root, sought(view, "evidence", root, signers_of))

    @app.get(BLOBS + "rules/{root}", summary="A run's rules, canonical JSON", response_class=Response, responses=raw)
    def rules(view: Asked, root: Root) -> Response:
        sought(view, "rules", root, names_rules)
        return answered("rules", root)

    signed: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}

    @app.get(BLOBS + "manifests/{run}/{version}", summary="Signed manifest", response_class=Response, responses=signed)
    def manifest(view: Asked, run: Id, version: Id) -> Response:
        what = f"version {version} of run {run}"
        point = view.story(what, lambda connection: find_fact(connection, Checkpoint, run, version))
        if service.published is None:
            raise HTTPException(404, "this ledger reads no manifests: it was started without --relay")
        data = service.published.manifest(point)
        if data is None:
            raise HTTPException(404, f"the manifest of {what} was not read yet: {service.published.problem or 'wait'}")
        return Response(data, media_type="application/json", headers={"Cache-Control": "no-cache"})


def _checks(app: FastAPI, service: LedgerService) -> None:
    @app.get("/health", summary="How far the chain was read")
    def health() -> LedgerHealth:
        return service.health()

    @app.get("/audit", summary="Recompute everything from the chain and compare")
    def audited() -> AuditAnswer:
        report = service.audit()
        return AuditAnswer(audit="ok" if report.ok else "failed", report=report)


def _say_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 422)

    @app.exception_handler(AssizeError)
    async def failed(request: Request, error: AssizeError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, code_of(error))


def _tag_answers(app: FastAPI, service: LedgerService) -> None:
    @app.middleware("http")
    async def tagged(request: Request, answered: Callable[[Request], Awaitable[Response]]) -> Response:
        path = request.url.path
        untagged = path in UNTAGGED or path.startswith(BLOBS)
        if request.method == "POST" or untagged or "as_of" in request.query_params:
            return await answered(request)
        tag = await run_in_threadpool(service.tag)
        known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
        if tag and tag in known:
            return Response(status_code=304, headers={"ETag": tag})
        answer = await answered(request)
        if answer.status_code == 200 and tag == await run_in_threadpool(service.tag):  # else it may be of either block
            answer.headers["ETag"] = tag
        return answer
