"""Several RPC endpoints of one chain: the one in use, and the others in its stead when it is out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from protocol.chain.rpc import Request, Rpc, RpcFault
from protocol.errors import Unavailable

Answer = TypeVar("Answer")


class Endpoints(Rpc):
    """Asks the first endpoint that answers, and stays with it.

    ``check`` is made once of each endpoint before its first use: that it serves the right chain. An endpoint's error in
    JSON-RPC is an answer; only silence moves on to the next.
    """

    def __init__(self, endpoints: Sequence[Rpc], check: Callable[[Rpc], None]) -> None:
        self._endpoints = list(endpoints)
        self._check = check
        self._checked: set[int] = set()
        self._turning = threading.Lock()

    @property
    def url(self) -> str:  # type: ignore[override]  # of whichever is in use
        """URL of the endpoint in use."""
        return self._endpoints[0].url

    @property
    def round_trips(self) -> int:  # type: ignore[override]
        """Over all endpoints."""
        return sum(endpoint.round_trips for endpoint in self._endpoints)

    @property
    def others(self) -> tuple[Rpc, ...]:
        """The endpoints not in use, for a second opinion."""
        return tuple(self._endpoints[1:])

    def call(self, method: str, *params: Any) -> Any:
        """As ``Rpc.call``, of the first endpoint that answers."""
        return self._first(lambda endpoint: endpoint.call(method, *params))

    def batch(self, requests: Sequence[Request]) -> list[Any]:
        """As ``Rpc.batch``, all of it by one endpoint."""
        return self._first(lambda endpoint: endpoint.batch(requests))

    def close(self) -> None:
        """Closes the connections of all."""
        for endpoint in self._endpoints:
            endpoint.close()

    def _first(self, ask: Callable[[Rpc], Answer]) -> Answer:
        failure: Unavailable | None = None
        for _ in range(len(self._endpoints)):
            endpoint = self._endpoints[0]
            try:
                if id(endpoint) not in self._checked:
                    self._check(endpoint)
                    self._checked.add(id(endpoint))
                return ask(endpoint)
            except RpcFault:
                raise
            except Unavailable as error:
                failure = error
                with self._turning:
                    if self._endpoints[0] is endpoint:  # else another thread has moved on already
                        self._endpoints = [*self._endpoints[1:], endpoint]
        assert failure is not None
        raise failure
