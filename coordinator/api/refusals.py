"""Refusals of requests, with their HTTP status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

from protocol.errors import Rejected
from protocol.wire.api import StoreRefusal


class Refused(Rejected):
    """The request is refused with ``status`` (4xx) and one sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotHeld(Refused):
    """The store does not serve an artifact; ``refusal`` says so over its signature."""

    def __init__(self, message: str, refusal: StoreRefusal) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, message)
        self.refusal = refusal


unsigned = partial(Refused, HTTPStatus.UNAUTHORIZED)
"""Refusal of an unsigned or wrongly signed request: 401."""
forbidden = partial(Refused, HTTPStatus.FORBIDDEN)
"""Refusal of a request that its signer may not make: 403."""
missing = partial(Refused, HTTPStatus.NOT_FOUND)
"""Refusal of a request for something unknown: 404."""
conflicting = partial(Refused, HTTPStatus.CONFLICT)
"""Refusal of a request that contradicts the present state: 409."""
too_large = partial(Refused, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Refusal of a body that is too large: 413."""
unreadable = partial(Refused, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Refusal of an invalid body: 422."""
too_slow = partial(Refused, HTTPStatus.REQUEST_TIMEOUT)
"""Refusal of a body that arrives too slowly: 408."""
too_many = partial(Refused, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusal of one more body from a key that is sending as many as it may: 429."""


@contextmanager
def refusing(refusal: Callable[[str], Refused]) -> Iterator[None]:
    """Turns a ``Rejected`` raised in the block into a ``refusal`` with the same sentence."""
    try:
        yield
    except Rejected as error:
        raise refusal(str(error)) from error
