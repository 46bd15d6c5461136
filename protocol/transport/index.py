"""The page at `/` of a service: its name and its paths, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def add_index(app: Starlette, service: str, paths: Callable[[], Iterable[str]]) -> None:
    """Has an application answer at `/` with the service's name and its paths, which are asked for then."""

    async def answer(_: Request) -> Response:
        return JSONResponse({"service": service, "paths": sorted(paths())})

    app.router.routes.append(Route("/", answer, include_in_schema=False))
