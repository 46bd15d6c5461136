"""The ledger over HTTP: read-only, described by OpenAPI, wei and other wide numbers as strings.

Lists come in pages (``limit``, ``after``); every page names the block it holds for, and the newest that is final.
Answers carry the block's hash as their entity tag: who has one already asks with ``If-None-Match``, and gets a 304
without a body. Errors are ``{"error": sentence}``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, TypeVar, get_type_hints

from eth_utils import to_checksum_address
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ledger import queries
from ledger.audit import audit
from ledger.audit.report import Report
from ledger.book import Kind
from ledger.database import Database
from ledger.facts import Appeal, Checkpoint, Credit, CreditEntry, Node, Round, Run, Service, Slash
from ledger.fairness import Reckoning, Share
from ledger.follower import Follower
from ledger.lineage import Lineage, lineage
from ledger.pages import AuditAnswer, Error, Health, Page, pack_cursor, unpack_cursor
from ledger.why import Explanation, why_entry, why_job
from protocol.chain.client import Chain
from protocol.errors import Rejected, Unavailable

AUDIT_SECONDS = 10.0
"""Least time between two audits that the API makes; in between the last one is answered."""

UNTAGGED = ("/health", "/audit", "/openapi.json", "/docs", "/redoc")
"""Answers that hold more than what the database says of a block."""

Limit = Annotated[int, Query(ge=1, le=500, description="Most items of the page.")]
After = Annotated[str | None, Query(description="The cursor `next` of the page before.")]
Id = Annotated[int, Path(ge=0, lt=2**63)]
Filter = Annotated[int | None, Query(ge=0, lt=2**63)]
Owner = Annotated[str, Path(pattern="^0x[0-9a-fA-F]{40}$", description="Address of an owner.")]
EventName = Annotated[str | None, Query(max_length=64, description="Only events of this name.")]
Story = TypeVar("Story")


class Desk:
    """What the routes answer from: the database, and audits that are not made more often than they are worth."""

    def __init__(self, chain: Chain, database: Database, follower: Follower) -> None:
        self.chain = chain
        self.database = database
        self.follower = follower
        self._reckoning = Reckoning()
        self._lock = threading.Lock()
        self._report: Report | None = None
        self._made_at = 0.0

    def page(self, kind: type[Kind], after: str | None, limit: int, **only: Any) -> Page[Kind]:
        """One page of facts of one kind."""
        hints = get_type_hints(kind)
        place = None if after is None else unpack_cursor(after, tuple(hints[name] for name in kind.KEY))
        wanted = {name: value for name, value in only.items() if value is not None}
        with self.database.reading() as connection:
            items = queries.page(connection, kind, place, limit + 1, **wanted)
            return _paged(connection, items, limit)

    def events(self, after: str | None, limit: int, name: str | None) -> Page[queries.EventRecord]:
        """One page of raw events."""
        place = None if after is None else unpack_cursor(after, (int, int))
        with self.database.reading() as connection:
            return _paged(connection, queries.events(connection, place, limit + 1, name), limit)

    def story(self, what: str, ask: Callable[[Connection], Story | None]) -> Story:
        """One story. Raises 404 where there is none."""
        with self.database.reading() as connection:
            found = ask(connection)
        if found is None:
            raise HTTPException(404, f"there is no {what}")
        return found

    def shares(self, after: str | None, limit: int) -> Page[Share]:
        """One page of workers' shares."""
        (place,) = (-1,) if after is None else unpack_cursor(after, (int,))
        with self.database.reading() as connection:
            return _paged(connection, self._reckoning.shares(connection, place, limit + 1), limit)

    def tag(self) -> str:
        """The entity tag of every answer from the database: it changes with each block that is taken in."""
        try:
            with self.database.reading() as connection:
                return f'"{queries.at(connection).block_hash}"'
        except Unavailable:
            return ""  # whoever answers says why

    def audit(self) -> Report:
        """A report no older than ``AUDIT_SECONDS``, or a new one."""
        with self._lock:
            if self._report is None or time.monotonic() - self._made_at > AUDIT_SECONDS:
                self._report = audit(self.chain, self.database)
                self._made_at = time.monotonic()
            return self._report

    def health(self) -> Health:
        """Where the ledger stands."""
        with self.database.reading() as connection:
            at = queries.at(connection)
        problem = self.follower.problem
        try:
            behind = max(0, self.chain.head().number - at.block_number)
        except Unavailable as error:
            behind, problem = None, problem or str(error)
        status = "failing" if problem else "following"
        return Health(status=status, chain_id=self.chain.chain_id, behind=behind, problem=problem, **_at(at))


def create_app(chain: Chain, database: Database, follower: Follower) -> FastAPI:
    """Returns the API; it starts ``follower`` and stops it with itself."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        follower.start()
        yield
        follower.stop()

    refusals: dict[int | str, dict[str, Any]] = {code: {"model": Error} for code in (400, 404, 422, 503)}
    app = FastAPI(title="Assize ledger", version="1", lifespan=lifespan, responses=refusals)
    _say_errors(app)
    desk = Desk(chain, database, follower)
    _lists(app, desk)
    _stories(app, desk)
    _checks(app, desk)
    _tag_answers(app, desk)
    return app


def _lists(app: FastAPI, desk: Desk) -> None:
    @app.get("/credits", summary="What every owner holds")
    def credits(limit: Limit = 100, after: After = None) -> Page[Credit]:
        return desk.page(Credit, after, limit)

    @app.get("/credits/{owner}/entries", summary="Every movement of an owner's credits")
    def entries(owner: Owner, limit: Limit = 100, after: After = None) -> Page[CreditEntry]:
        return desk.page(CreditEntry, after, limit, owner=to_checksum_address(owner))

    @app.get("/rounds", summary="Rounds, oldest first")
    def rounds(limit: Limit = 100, after: After = None, run: Filter = None) -> Page[Round]:
        return desk.page(Round, after, limit, run=run)

    @app.get("/nodes", summary="Nodes and their bonds")
    def nodes(limit: Limit = 100, after: After = None) -> Page[Node]:
        return desk.page(Node, after, limit)

    @app.get("/runs", summary="Runs and their escrow")
    def runs(limit: Limit = 100, after: After = None) -> Page[Run]:
        return desk.page(Run, after, limit)

    @app.get("/checkpoints", summary="Published weights")
    def checkpoints(limit: Limit = 100, after: After = None, run: Filter = None) -> Page[Checkpoint]:
        return desk.page(Checkpoint, after, limit, run=run)

    @app.get("/appeals", summary="Verdicts disputed, and what came of it")
    def appeals(limit: Limit = 100, after: After = None, round: Filter = None) -> Page[Appeal]:
        return desk.page(Appeal, after, limit, round=round)

    @app.get("/slashes", summary="Bonds slashed, and why")
    def slashes(limit: Limit = 100, after: After = None, node: Filter = None) -> Page[Slash]:
        return desk.page(Slash, after, limit, node=node)

    @app.get("/events", summary="Raw events as the chain emitted them")
    def events(limit: Limit = 100, after: After = None, name: EventName = None) -> Page[queries.EventRecord]:
        return desk.events(after, limit, name)


def _stories(app: FastAPI, desk: Desk) -> None:
    @app.get("/credits/{owner}", summary="One owner: credits, nodes, slashes")
    def credit(owner: Owner) -> queries.CreditStory:
        address = to_checksum_address(owner)
        return desk.story(f"owner {address}", lambda connection: queries.credit_story(connection, address))

    @app.get("/rounds/{round}", summary="All that happened in one round")
    def round_(round: Id) -> queries.RoundStory:
        return desk.story(f"round {round}", lambda connection: queries.round_story(connection, round))

    @app.get("/runs/{run}", summary="One run, its members and checkpoints")
    def run(run: Id) -> queries.RunStory:
        return desk.story(f"run {run}", lambda connection: queries.run_story(connection, run))

    @app.get("/checkpoints/{run}/{version}", summary="One checkpoint and what it was trained on")
    def checkpoint(run: Id, version: Id) -> queries.CheckpointStory:
        what = f"version {version} of run {run}"
        return desk.story(what, lambda connection: queries.checkpoint_story(connection, run, version))

    @app.get("/why/jobs/{round}/{job}", summary="Everything that led to what became of a job")
    def why_a_job(round: Id, job: Id) -> Explanation:
        return desk.story(f"job {job} in a round {round}", lambda connection: why_job(connection, round, job))

    @app.get("/why/entries/{block}/{log}", summary="Everything that led to a movement of credits, or a slash")
    def why_an_entry(block: Id, log: Id) -> Explanation:
        what = f"credit or slash at {block}:{log}"
        return desk.story(what, lambda connection: why_entry(connection, block, log))

    @app.get("/lineage/{run}/{version}", summary="What a checkpoint stands on")
    def line(run: Id, version: Id) -> Lineage:
        what = f"version {version} of run {run}"
        return desk.story(what, lambda connection: lineage(connection, run, version))

    @app.get("/validators", summary="Every validator's seats, votes and absences")
    def validators(limit: Limit = 100, after: After = None) -> Page[Service]:
        return desk.page(Service, after, limit)

    @app.get("/fairness", summary="Every worker's share of the jobs against its due")
    def shares(limit: Limit = 100, after: After = None) -> Page[Share]:
        return desk.shares(after, limit)

    @app.get("/treasury", summary="What was slashed, and what became of it")
    def treasury() -> queries.TreasuryStory:
        return desk.story("treasury", queries.treasury_story)


def _checks(app: FastAPI, desk: Desk) -> None:
    @app.get("/health", summary="How far the chain was read")
    def health() -> Health:
        return desk.health()

    @app.get("/audit", summary="Recompute everything from the chain and compare")
    def audited() -> AuditAnswer:
        report = desk.audit()
        return AuditAnswer(audit="ok" if report.ok else "failed", report=report)


def _say_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 422)

    @app.exception_handler(Rejected)
    async def rejected(request: Request, error: Rejected) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(Unavailable)
    async def unavailable(request: Request, error: Unavailable) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 503)


def _tag_answers(app: FastAPI, desk: Desk) -> None:
    @app.middleware("http")
    async def tagged(request: Request, answered: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.url.path in UNTAGGED:
            return await answered(request)
        tag = await run_in_threadpool(desk.tag)
        known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
        if tag and tag in known:
            return Response(status_code=304, headers={"ETag": tag})
        answer = await answered(request)
        if answer.status_code == 200 and tag == await run_in_threadpool(desk.tag):  # else it may be of either block
            answer.headers["ETag"] = tag
        return answer


def _paged(connection: Connection, items: tuple[Any, ...], limit: int) -> Page[Any]:
    shown = items[:limit]
    following = pack_cursor(queries.place_of(shown[-1])) if len(items) > limit else None
    return Page(items=shown, next=following, **_at(queries.at(connection)))


def _at(at: queries.At) -> dict[str, Any]:
    return asdict(at)
