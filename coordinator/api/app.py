"""The FastAPI application: routes, and errors as one sentence in a JSON body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from coordinator.api.bodies import has_body
from coordinator.api.examples import with_examples
from coordinator.api.openapi import ERRORS
from coordinator.api.refusals import NotHeld, Refused
from coordinator.api.routes import router
from coordinator.api.service import CoordinatorService
from protocol.errors import Rejected, Unavailable
from protocol.transport.index import add_index
from protocol.transport.request_times import RequestTimes
from protocol.wire.api import ErrorBody, StoreRefusal

log = structlog.get_logger()

MOST_SENTENCE = 1000
"""Longest error message sent, in characters."""


def create_app(service: CoordinatorService) -> FastAPI:
    """Returns the API of ``service``, which it closes when the server stops."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Assize coordinator", version="1", lifespan=lifespan, responses=ERRORS, docs_url=None, redoc_url=None
    )
    plain = app.openapi
    app.openapi = lambda: with_examples(plain())  # type: ignore[method-assign]
    app.state.service = service
    app.include_router(router)
    app.add_middleware(RequestTimes)
    add_index(app, app.title, lambda: (*app.openapi()["paths"], "/openapi.json"))
    app.add_exception_handler(Rejected, _rejected)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    return app


async def _rejected(request: Request, error: Exception) -> JSONResponse:
    status = error.status if isinstance(error, Refused) else HTTPStatus.BAD_REQUEST
    return _answer(request, status, str(error), {}, error.refusal if isinstance(error, NotHeld) else None)


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    log.warning("unavailable", path=request.url.path, error=str(error))
    return _answer(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"Retry-After": "1"})


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return _answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, f"{where}: {first['msg']}", {})


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentence = f"{request.method} {request.url.path}: {error.detail}"
    return _answer(request, error.status_code, sentence, dict(error.headers or {}))


def _answer(
    request: Request, status: int, sentence: str, headers: dict[str, str], refusal: StoreRefusal | None = None
) -> JSONResponse:
    # The rest of a refused body is not read, so the connection cannot carry another request.
    body = ErrorBody(error=sentence[:MOST_SENTENCE], refusal=refusal)
    headers |= {"Connection": "close"} if has_body(request) else {}
    return JSONResponse(body.model_dump(mode="json", exclude_none=True), int(status), headers)
