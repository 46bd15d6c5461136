"""The renderer: a page of what was asked for, with the block, its lag and the links that each page has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from ledger.api.service import LedgerService, Snapshot
from ledger.explorer.chain_figures import ChainFiguresReader, Figures
from ledger.explorer.freshness import ChainWatch
from ledger.explorer.links import Links
from ledger.explorer.live import event_of
from ledger.explorer.rendering import render
from ledger.explorer.views import time_of
from ledger.queries import lookup
from protocol.errors import Unavailable


class Renderer:
    """Renders the pages of one ledger with what each has at its top."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self._watch = ChainWatch(service)
        self._figures = ChainFiguresReader(service.chain)

    def page(
        self,
        request: Request,
        view: Snapshot,
        template: str,
        what: str,
        ask: Callable[[Connection], Any],
        more: Callable[[Any], Any] = lambda found: None,
        figures: Callable[[Any], Figures] | None = None,
    ) -> Response:
        """Returns a page of what ``ask`` finds as of the block of ``view``; a refusal with 404 where that is None.

        ``more`` adds to it what is not in the database, once that is no longer read. The page of a party has its
        ``figures``, by what was found, from the chain where the ledger is not current.
        """
        with view.reading() as connection:
            found = ask(connection)
            here = lookup.at(connection)
            now = time_of(connection, here.block_number)
        own = figures(found) if figures else None
        if found is None:
            return self._shown(request, "refusal.html", 404, None, own, sentence=f"there is no {what}", code=404)
        if view.block_hash is None:
            now = max(now, int(time.time()))
        return self._shown(request, template, 200, here, own, view=found, now=now, contents=more(found))

    def event(self) -> bytes:
        """Returns the event that tells of the newest block."""
        with self._service.database.reading() as connection:
            here = lookup.at(connection)
        return event_of(here, self._watch.freshness(here))

    def refusal(self, request: Request, code: int, sentence: str) -> Response:
        """Returns a page with one sentence."""
        return self._shown(request, "refusal.html", code, None, None, sentence=sentence, code=code)

    def _shown(
        self,
        request: Request,
        template: str,
        status: int,
        here: lookup.At | None,
        figures: Figures | None,
        **more: Any,
    ) -> Response:
        """Returns a page; of a refusal the block is the newest, if the database answers."""
        newest = here
        as_of = request.query_params.get("as_of") if here else None
        if here is None or as_of:
            try:
                with self._service.database.reading() as connection:
                    newest = lookup.at(connection)
            except Unavailable:
                newest = None
        asked = {name: value for name, value in request.query_params.items() if name != "as_of"}
        at = here or newest
        fresh = self._watch.freshness(newest) if newest else None
        current = fresh is None or not fresh.alarming or fresh.head is None or as_of
        top = {
            "to": Links(as_of),
            "as_of": as_of,
            "at": at,
            "permalink": Links(at.block_hash).url(request.url.path, **asked) if at else "",
            "newest": newest,
            "fresh": fresh,
            "figures": self._figures.read(figures) if figures and not current else None,
            "path": request.url.path,
            "home": Links().url(request.url.path),
            "sought": request.query_params.get("q", ""),
            "chain_id": self._service.chain.chain_id,
            "contracts": self._service.chain.deployment.identity()["contracts"] if self._service.actions else None,
        }
        return render(template, status, **top, **more)
