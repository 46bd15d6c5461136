"""Content negotiation: one URL answers with JSON or HTML, as the request's ``Accept`` prefers (RFC 9110, 12.5.1).

HTML is for clients that name it, as browsers do. No ``Accept``, ``*/*`` and ``application/json`` keep the API's JSON.

Pages of any origin may read what the API answers to a GET (CORS), so that a reader can check this ledger with a file
from their own disk. That gives nothing away: the API has no users, cookies or secrets, and tells everyone the same.
Browsers send no credentials to such an answer, pages themselves are left out, and nothing but reading is allowed.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HTML = ("text/html", "application/xhtml+xml")
JSON = ("application/json",)
BLOBS = "/blobs/"
"""Folder of raw bytes, which are no page for whoever asks."""
STATIC = "/static/"
"""Folder of the style sheet, whatever is asked for: browsers ask for CSS by ``text/css,*/*``."""
LIVE = "/live"
"""Path of the streams of events, whatever is asked for."""
NO_PAGE = ("/health", "/openapi.json")
"""Paths that answer with JSON alone."""


def prefers_html(accept: str) -> bool:
    """Returns whether an ``Accept`` names HTML with a higher quality than it names JSON. PURE."""
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        given = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        try:
            qualities[name] = float(given)
        except ValueError:
            qualities[name] = 0.0
    html = max((qualities.get(name, 0.0) for name in HTML), default=0.0)
    return html > max((qualities.get(name, 0.0) for name in JSON), default=0.0)


class Negotiator:
    """ASGI middleware: passes a request for HTML or static files to ``pages``, any other to the API."""

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._api, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        path: str = scope["path"]
        asks_for_html = prefers_html(Headers(scope=scope).get("accept", ""))
        wants_page = asks_for_html and path not in NO_PAGE and not path.startswith(BLOBS)
        from_api = not path.startswith(STATIC) and path != LIVE and not wants_page

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Accept")
                if from_api and scope["method"] in ("GET", "HEAD"):
                    headers["Access-Control-Allow-Origin"] = "*"
            await send(message)

        await (self._api if from_api else self._pages)(scope, receive, answer)
