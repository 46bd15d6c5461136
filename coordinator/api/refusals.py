"""A refusal with the HTTP status it is answered with."""

from __future__ import annotations

from http import HTTPStatus

from protocol.errors import Rejected


class Refused(Rejected):
    """The request is refused with ``status`` (4xx) and one sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def unsigned(message: str) -> Refused:
    """The request is not signed as it should be: 401."""
    return Refused(HTTPStatus.UNAUTHORIZED, message)


def forbidden(message: str) -> Refused:
    """The signer may not do this: 403."""
    return Refused(HTTPStatus.FORBIDDEN, message)


def missing(message: str) -> Refused:
    """There is no such thing here: 404."""
    return Refused(HTTPStatus.NOT_FOUND, message)


def conflicting(message: str) -> Refused:
    """What is known here speaks against it: 409."""
    return Refused(HTTPStatus.CONFLICT, message)


def too_large(message: str) -> Refused:
    """More bytes than are taken: 413."""
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def unreadable(message: str) -> Refused:
    """The body is not what it should be: 422."""
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, message)
