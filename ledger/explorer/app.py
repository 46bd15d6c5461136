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
from ledger.api.parameters import Asked, AsOf, EventName, Filter, Id, InBlock, Owner, OwnPage, Sought, TxHash, code_of
from ledger.api.service import LedgerService, Snapshot
from ledger.book import Kind
from ledger.explorer import rendering, views
from ledger.explorer.browser_checks import allow_node, check_view
from ledger.explorer.chain_figures import Figures, of_node, of_owner
from ledger.explorer.contents import Contents, JobContents, NodeContents
from ledger.explorer.links import Links
from ledger.explorer.live import LiveFeed
from ledger.explorer.negotiation import LIVE, STATIC
from ledger.explorer.renderer import Renderer
from ledger.explorer.samples import Samples
from ledger.explorer.timeline import moment
from ledger.facts import Appeal, Checkpoint, Credit, CreditEntry, Node, Round, Run, Service, Slash
from ledger.queries import lookup
from ledger.queries.search import search, transaction_story
from ledger.queries.verdicts import newest_verdicts
from ledger.queries.why import why_entry, why_job
from protocol.errors import AssizeError

Before = Annotated[str | None, Query(description="The cursor of the page before.")]
First = Annotated[int, Query(ge=0, lt=256, description="The first job shown.")]
FirstRollout = Annotated[int, Query(ge=0, lt=1 << 16, description="The first rollout shown.")]
NodeUrl = Annotated[str | None, Query(max_length=300, description="URL of the node that the browser asks.")]


def create_pages(service: LedgerService) -> FastAPI:
    """Returns the pages beside the API that answers from ``service``."""
    app = FastAPI(title="Assize explorer", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service
    rendering.environment()
    renderer = Renderer(service)
    feed = app.state.live = LiveFeed(renderer.event)
    _things(app, renderer, service)
    _lists(app, renderer)
    _checks(app, renderer, service)
    _browser_checks(app, renderer, service)
    _refusals(app, renderer)

    @app.get(STATIC + "{name}")
    def static(name: str) -> Response:
        found = rendering.static(name)
        if found is None:
            raise HTTPException(404, "Not Found")
        return found

    @app.get(LIVE, include_in_schema=False)
    async def live(request: Request) -> Response:
        return feed.stream(request.client.host if request.client else "")

    return app


def _things(app: FastAPI, renderer: Renderer, service: LedgerService) -> None:
    page, contents = renderer.page, Contents(service.blobs, service.chain.deployment)
    samples = Samples(contents)

    @app.get("/")
    def now(request: Request, view: Asked) -> Response:
        last = view.ledger.last_audit
        return page(request, view, "now.html", "", lambda connection: (views.now_view(connection), last))

    @app.get("/runs/{run}")
    def run_(request: Request, view: Asked, run: Id) -> Response:
        def ask(connection: Connection) -> views.RunView | None:
            return views.run_view(connection, run, _now(connection, view), view.ledger.published)

        return page(request, view, "run.html", f"run {run}", ask, lambda found: samples.of(found.samples))

    @app.get("/rounds/{round}")
    def round_(request: Request, view: Asked, round: Id, after: Before = None, first: First = 0) -> Response:
        place = None if after is None else unpack_cursor(after, (int, int))
        what = f"round {round}"
        return page(request, view, "round.html", what, lambda asked: views.round_view(asked, round, place, first))

    @app.get("/nodes/{node}")
    def node_(request: Request, view: Asked, node: Id) -> Response:
        def ask(connection: Connection) -> tuple[views.NodeView, Any, Any] | None:
            found = views.node_view(connection, node, service.blobs.named)
            if found is None:
                return None
            shares = view.ledger.reckoning.shares(connection, node - 1, 1) if found.node.role == "worker" else ()
            return found, DETECTION, next((share for share in shares if share.node == node), None)

        def more(found: tuple[views.NodeView, Any, Any]) -> NodeContents:
            return contents.node(found[0].rounds, found[0].refusals)

        return page(request, view, "node.html", f"node {node}", ask, more, lambda found: of_node(node))

    @app.get("/credits/{owner}")
    def owner_(request: Request, view: Asked, owner: Owner, after: Before = None) -> Response:
        address, place = to_checksum_address(owner), None if after is None else unpack_cursor(after, (int,))

        def ask(connection: Connection) -> views.OwnerView | None:
            return views.owner_view(connection, address, place)

        def figures(found: views.OwnerView | None) -> Figures:
            return of_owner(address, found.nodes.items if found else ())

        return page(request, view, "owner.html", f"owner {address}", ask, figures=figures)

    @app.get("/why/jobs/{round}/{job}")
    def job_(request: Request, view: Asked, round: Id, job: Id, first: FirstRollout = 0) -> Response:
        def ask(connection: Connection) -> views.JobView | None:
            story = why_job(connection, round, job)
            return None if story is None else views.job_view(connection, story, round, job)

        def more(found: views.JobView) -> JobContents | None:
            return None if found.sources is None or found.job is None else contents.job(found.job, found.sources, first)

        return page(request, view, "job.html", f"job {job} in a round {round}", ask, more)

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

    @app.post("/audit", dependencies=[OwnPage])
    def audit(as_of: AsOf = None) -> Response:
        service.audit()
        return RedirectResponse(Links(as_of).url("/audit"), 303, headers=rendering.HEADERS)


def _browser_checks(app: FastAPI, renderer: Renderer, service: LedgerService) -> None:
    def check(request: Request, view: Snapshot, name: str, page: str, rpc: str | None) -> Response:
        thing = request.url.path.removeprefix("/check/")
        shown = check_view(name, page, thing, rpc, service.chain.deployment)
        return allow_node(renderer.page(request, view, "check.html", "", lambda connection: shown), shown)

    @app.get("/check/rounds/{round}")
    def check_round(request: Request, view: Asked, round: Id, rpc: NodeUrl = None) -> Response:
        return check(request, view, f"round {round}", f"/rounds/{round}", rpc)

    @app.get("/check/jobs/{round}/{job}")
    def check_job(request: Request, view: Asked, round: Id, job: Id, rpc: NodeUrl = None) -> Response:
        return check(request, view, f"job {job} of round {round}", f"/why/jobs/{round}/{job}", rpc)

    @app.get("/check/entries/{block}/{log}")
    def check_entry(request: Request, view: Asked, block: Id, log: Id, rpc: NodeUrl = None) -> Response:
        return check(request, view, f"entry {block}:{log}", f"/why/entries/{block}/{log}", rpc)

    @app.get("/check/checkpoints/{run}/{version}")
    def check_checkpoint(request: Request, view: Asked, run: Id, version: Id, rpc: NodeUrl = None) -> Response:
        return check(request, view, f"version {version} of run {run}", f"/checkpoints/{run}/{version}", rpc)


def _refusals(app: FastAPI, renderer: Renderer) -> None:
    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        sentence = f"there is no page {request.url.path}" if error.detail == "Not Found" else str(error.detail)
        answer = renderer.refusal(request, error.status_code, sentence)
        answer.headers.update(error.headers or {})
        return answer

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
