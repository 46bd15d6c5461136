"""Times the requests of a server by route, for those who watch."""

from __future__ import annotations

import time

from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = Histogram(
    "assize_http_request_seconds",
    "Seconds of a request to this server, long polls included; status is the code's first digit",
    ["route", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
UNKNOWN = "unknown"
"""Route of requests for no path of the server; strangers choose those."""


class RequestTimes:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Times one request. One whose client leaves before the answer has status 0."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"] // 100
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            SECONDS.labels(_route_of(scope), str(status)).observe(time.perf_counter() - began)


def _route_of(scope: Scope) -> str:
    """Returns the path of the route that answered, as the server's source writes it."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:
        routes = getattr(scope.get("app"), "routes", ())
        route = next((each for each in routes if getattr(each, "endpoint", None) is scope["endpoint"]), None)
    return str(getattr(route, "path", UNKNOWN))
