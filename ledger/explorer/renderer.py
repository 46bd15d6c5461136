"""The renderer: a page of what was asked for, with the block, its lag and the links that each page has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ledger.api.service import LedgerService, Snapshot
from ledger.explorer.freshness import ChainWatch
from ledger.explorer.links import Links
from ledger.explorer.rendering import render
from ledger.explorer.views import time_of
from ledger.queries import lookup
from protocol.errors import Unavailable


class Renderer:
    """Renders the pages of one ledger with what each has at its top."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self._watch = ChainWatch(service)

    def page(
        self,
        request: Request,
        view: Snapshot,
        template: str,
        what: str,
        ask: Callable[[Connection], Any],
        more: Callable[[Any], Any] = lambda found: None,
    ) -> Response:
        """Returns a page of what ``ask`` finds as of the block of ``view``; raises 404 where it is None.

        ``more`` adds to it what is not in the database, once that is no longer read.
        """
        with view.reading() as connection:
            found = ask(connection)
            here, now = lookup.at(connection), time_of(connection, lookup.at(connection).block_number)
        if found is None:
            raise HTTPException(404, f"there is no {what}")
        if view.block_hash is None:
            now = max(now, int(time.time()))
        return self._shown(request, template, 200, here, view=found, now=now, contents=more(found))

    def refusal(self, request: Request, code: int, sentence: str) -> Response:
        """Returns a page with one sentence."""
        return self._shown(request, "refusal.html", code, None, sentence=sentence, code=code)

    def _shown(self, request: Request, template: str, status: int, here: lookup.At | None, **more: Any) -> Response:
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
        top = {
            "to": Links(as_of),
            "as_of": as_of,
            "at": at,
            "permalink": Links(at.block_hash).url(request.url.path, **asked) if at else "",
            "newest": newest,
            "fresh": self._watch.freshness(newest) if newest else None,
            "path": request.url.path,
            "home": Links().url(request.url.path),
            "sought": request.query_params.get("q", ""),
            "chain_id": self._service.chain.chain_id,
        }
        return render(template, status, **top, **more)
