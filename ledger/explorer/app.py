"""Pages: one route for each, and each refusal as a page with one sentence.

Lists begin with the newest and go on ``before`` a cursor. A page asked for ``as_of`` a block keeps that in every link.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, get_type_hints

from eth_utils import to_checksum_address
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from ledger.api.bodies import DETECTION, unpack_cursor
from ledger.api.parameters import Asked, AsOf, EventName, Filter, Id, InBlock, Owner, Sought, TxHash, code_of
from ledger.api.service import LedgerService, Snapshot
from ledger.book import Kind
from ledger.explorer import rendering, views
from ledger.explorer.links import Links
from ledger.explorer.negotiation import STATIC
from ledger.explorer.renderer import Renderer
from ledger.explorer.timeline import moment
from ledger.facts import Appeal, Checkpoint, Credit, CreditEntry, Node, Round, Run, Service, Slash
from ledger.queries import lookup
from ledger.queries.search import search, transaction_story
from ledger.queries.verdicts import newest_verdicts
from ledger.queries.why import why_entry, why_job
from protocol.errors import AssizeError

Before = Annotated[str | None, Query(description="The cursor of the page before.")]
First = Annotated[int, Query(ge=0, lt=256, description="The first job shown.")]


def create_pages(service: LedgerService) -> FastAPI:
    """Returns the pages beside the API that answers from ``service``."""
    app = FastAPI(title="Assize explorer", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service
    rendering.environment()
    renderer = Renderer(service)
    _things(app, renderer)
    _lists(app, renderer)
    _checks(app, renderer, service)
    _refusals(app, renderer)

    @app.get(STATIC + "{name}")
    def static(name: str) -> Response:
        found = rendering.static(name)
        if found is None:
            raise HTTPException(404, "Not Found")
        return found

    return app


def _things(app: FastAPI, renderer: Renderer) -> None:
    page = renderer.page

    @app.get("/")
    def now(request: Request, view: Asked) -> Response:
        last = view.ledger.last_audit
        return page(request, view, "now.html", "", lambda connection: (views.now_view(connection), last))

    @app.get("/runs/{run}")
    def run_(request: Request, view: Asked, run: Id) -> Response:
        def ask(connection: Connection) -> views.RunView | None:
            return views.run_view(connection, run, _now(connection, view))

        return page(request, view, "run.html", f"run {run}", ask)

    @app.get("/rounds/{round}")
    def round_(request: Request, view: Asked, round: Id, after: Before = None, first: First = 0) -> Response:
        place = None if after is None else unpack_cursor(after, (int, int))
        what = f"round {round}"
        return page(request, view, "round.html", what, lambda asked: views.round_view(asked, round, place, first))

    @app.get("/nodes/{node}")
    def node_(request: Request, view: Asked, node: Id) -> Response:
        def ask(connection: Connection) -> tuple[views.NodeView, Any] | None:
            found = views.node_view(connection, node)
            return None if found is None else (found, DETECTION)

        return page(request, view, "node.html", f"node {node}", ask)

    @app.get("/credits/{owner}")
    def owner_(request: Request, view: Asked, owner: Owner, after: Before = None) -> Response:
        address, place = to_checksum_address(owner), None if after is None else unpack_cursor(after, (int,))
        what = f"owner {address}"
        return page(request, view, "owner.html", what, lambda asked: views.owner_view(asked, address, place))

    @app.get("/why/jobs/{round}/{job}")
    def job_(request: Request, view: Asked, round: Id, job: Id) -> Response:
        def ask(connection: Connection) -> views.JobView | None:
            story = why_job(connection, round, job)
            return None if story is None else views.job_view(connection, story, round, job)

        return page(request, view, "job.html", f"job {job} in a round {round}", ask)

    @app.get("/why/entries/{block}/{log}")
    def entry_(request: Request, view: Asked, block: Id, log: Id) -> Response:
        what = f"credit or slash at {block}:{log}"
        return page(request, view, "entry.html", what, lambda connection: why_entry(connection, block, log))

    @app.get("/checkpoints/{run}/{version}")
    @app.get("/lineage/{run}/{version}")
    def checkpoint(request: Request, view: Asked, run: Id, version: Id, after: Before = None) -> Response:
        place = None if after is None else unpack_cursor(after, (int, int))

        def ask(connection: Connection) -> views.CheckpointView | None:
            return views.checkpoint_view(connection, run, version, place)

        return page(request, view, "checkpoint.html", f"version {version} of run {run}", ask)

    @app.get("/treasury")
    def treasury(request: Request, view: Asked, before: Before = None) -> Response:
        place = None if before is None else unpack_cursor(before, (int, int))
        return page(request, view, "treasury.html", "treasury", lambda asked: views.treasury_view(asked, place))

    @app.get("/transactions/{tx}")
    def transaction(request: Request, view: Asked, tx: TxHash, block: InBlock = None) -> Response:
        place = view.ledger.located(tx) if block is None else block

        def ask(connection: Connection) -> Any:
            story = transaction_story(connection, tx, place)
            return None if story is None else (story, tuple(map(moment, story.events)))

        return page(request, view, "transaction.html", f"transaction {tx} among the contracts' events", ask)

    @app.get("/search")
    def search_(request: Request, view: Asked, q: Sought = "", as_of: AsOf = None) -> Response:
        place = view.ledger.located(q, needed=False)
        with view.reading() as connection:
            hits = search(connection, q, place)
        if len(hits) == 1 and hits[0].path:
            return RedirectResponse(Links(as_of).url(hits[0].path), 303, headers=rendering.HEADERS)
        return page(request, view, "search.html", "", lambda connection: hits)


def _lists(app: FastAPI, renderer: Renderer) -> None:
    def newest(
        request: Request, view: Snapshot, template: str, kind: type[Kind], before: str | None, **only: Any
    ) -> Response:
        hints = get_type_hints(kind)
        place = None if before is None else unpack_cursor(before, tuple(hints[name] for name in kind.KEY))
        wanted = {name: value for name, value in only.items() if value is not None}

        def ask(connection: Connection) -> Any:
            items = lookup.newest(connection, kind, place, views.PAGE_ITEMS + 1, **wanted)
            return views.listed(items, views.PAGE_ITEMS), wanted

        return renderer.page(request, view, template, "", ask)

    @app.get("/runs")
    def runs(request: Request, view: Asked, before: Before = None) -> Response:
        return newest(request, view, "runs.html", Run, before)

    @app.get("/rounds")
    def rounds(request: Request, view: Asked, before: Before = None, run: Filter = None) -> Response:
        return newest(request, view, "rounds.html", Round, before, run=run)

    @app.get("/nodes")
    def nodes(request: Request, view: Asked, before: Before = None) -> Response:
        return newest(request, view, "nodes.html", Node, before)

    @app.get("/validators")
    def validators(request: Request, view: Asked, before: Before = None) -> Response:
        return newest(request, view, "validators.html", Service, before)

    @app.get("/credits")
    def owners(request: Request, view: Asked, before: Before = None) -> Response:
        return newest(request, view, "owners.html", Credit, before)

    @app.get("/credits/{owner}/entries")
    def entries(request: Request, view: Asked, owner: Owner, before: Before = None) -> Response:
        return newest(request, view, "entries.html", CreditEntry, before, owner=to_checksum_address(owner))

    @app.get("/checkpoints")
    def checkpoints(request: Request, view: Asked, before: Before = None, run: Filter = None) -> Response:
        return newest(request, view, "checkpoints.html", Checkpoint, before, run=run)

    @app.get("/slashes")
    def slashes(
        request: Request, view: Asked, before: Before = None, node: Filter = None, round: Filter = None
    ) -> Response:
        return newest(request, view, "slashes.html", Slash, before, node=node, round=round)

    @app.get("/appeals")
    def appeals(request: Request, view: Asked, before: Before = None, round: Filter = None) -> Response:
        return newest(request, view, "appeals.html", Appeal, before, round=round)

    @app.get("/nodes/{node}/verdicts")
    def verdicts(request: Request, view: Asked, node: Id, before: Before = None) -> Response:
        place = None if before is None else unpack_cursor(before, (int, int))

        def ask(connection: Connection) -> Any:
            items = newest_verdicts(connection, node, place, views.PAGE_ITEMS + 1)
            return views.listed(items, views.PAGE_ITEMS), {"node": node}

        return renderer.page(request, view, "verdicts.html", "", ask)

    @app.get("/fairness")
    def fairness(request: Request, view: Asked, after: Before = None) -> Response:
        (place,) = (-1,) if after is None else unpack_cursor(after, (int,))

        def ask(connection: Connection) -> Any:
            shares = view.ledger.reckoning.shares(connection, place, views.PAGE_ITEMS + 1)
            return views.listed(shares, views.PAGE_ITEMS)

        return renderer.page(request, view, "fairness.html", "", ask)

    @app.get("/events")
    def events(request: Request, view: Asked, after: Before = None, name: EventName = None) -> Response:
        place = None if after is None else unpack_cursor(after, (int, int))

        def ask(connection: Connection) -> Any:
            found = views.listed(lookup.events(connection, place, views.PAGE_ITEMS + 1, name), views.PAGE_ITEMS)
            return views.Listed(tuple(map(moment, found.items)), found.next), name

        return renderer.page(request, view, "events.html", "", ask)


def _checks(app: FastAPI, renderer: Renderer, service: LedgerService) -> None:
    @app.get("/detection")
    def detection(request: Request, view: Asked) -> Response:
        return renderer.page(request, view, "detection.html", "", lambda connection: DETECTION)

    @app.get("/audit")
    def audited(request: Request, view: Asked) -> Response:
        last = service.last_audit
        return renderer.page(request, view, "audit.html", "", lambda connection: (last,))

    @app.post("/audit")
    def audit(request: Request, as_of: AsOf = None) -> Response:
        # Pages send no referrer, so that browsers name no origin; they say by themselves whose page asks.
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise HTTPException(403, "an audit is started from this server's own page only")
        service.audit()
        return RedirectResponse(Links(as_of).url("/audit"), 303, headers=rendering.HEADERS)


def _refusals(app: FastAPI, renderer: Renderer) -> None:
    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        sentence = f"there is no page {request.url.path}" if error.detail == "Not Found" else str(error.detail)
        return renderer.refusal(request, error.status_code, sentence)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return renderer.refusal(request, 422, f"{first['loc'][-1]}: {first['msg']}")

    @app.exception_handler(AssizeError)
    def failed(request: Request, error: AssizeError) -> Response:
        return renderer.refusal(request, code_of(error), str(error))


def _now(connection: Connection, view: Snapshot) -> int:
    """Returns the Unix second as of which a page speaks."""
    then = views.time_of(connection, lookup.at(connection).block_number)
    return then if view.block_hash is not None else max(then, int(time.time()))
