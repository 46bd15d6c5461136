"""Refusals of requests, with their HTTP status."""

from __future__ import annotations

from http import HTTPStatus

from protocol.errors import Rejected


class Refused(Rejected):
    """The request is refused with ``status`` (4xx) and one sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def unsigned(message: str) -> Refused:
    """Returns a refusal of an unsigned or wrongly signed request: 401."""
    return Refused(HTTPStatus.UNAUTHORIZED, message)


def forbidden(message: str) -> Refused:
    """Returns a refusal of a request that its signer may not make: 403."""
    return Refused(HTTPStatus.FORBIDDEN, message)


def missing(message: str) -> Refused:
    """Returns a refusal of a request for something unknown: 404."""
    return Refused(HTTPStatus.NOT_FOUND, message)


def conflicting(message: str) -> Refused:
    """Returns a refusal of a request that contradicts the present state: 409."""
    return Refused(HTTPStatus.CONFLICT, message)


def too_large(message: str) -> Refused:
    """Returns a refusal of a body that is too large: 413."""
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def unreadable(message: str) -> Refused:
    """Returns a refusal of an invalid body: 422."""
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, message)
