"""Several RPC endpoints of one chain, with failover."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.errors import Misconfigured, Unavailable

Answer = TypeVar("Answer")

SECONDS = Histogram(
    "assize_rpc_seconds", "Seconds of a request to an RPC endpoint, by its place in rpc_url", ["endpoint"]
)
FAILURES = Counter("assize_rpc_failures", "Requests that an RPC endpoint did not answer", ["endpoint"])
IN_USE = Gauge("assize_rpc_endpoint_in_use", "Place in rpc_url of the endpoint in use, from 1; 0 before the first")


class Endpoints(Rpc):
    """Asks the first endpoint that answers, and keeps using it.

    ``check`` verifies each endpoint before its first use, for example that it serves the right chain. If another
    endpoint has passed, a failing one is treated as unavailable: it may only be behind. A JSON-RPC error is an answer;
    only an unavailable endpoint makes the next one take over.
    """

    def __init__(self, endpoints: Sequence[Rpc], check: Callable[[Rpc], None]) -> None:
        self._endpoints = list(endpoints)
        self._place = {id(endpoint): place for place, endpoint in enumerate(endpoints, 1)}
        self._check = check
        self._checked: set[int] = set()
        self._turning = threading.Lock()
        self._answered = threading.local()

    @property  # type: ignore[misc]  # read-only here
    def url(self) -> str:
        """URL of the endpoint in use."""
        return self._endpoints[0].url

    @property
    def round_trips(self) -> int:  # type: ignore[override]
        """HTTP requests to all endpoints."""
        return sum(endpoint.round_trips for endpoint in self._endpoints)

    @property
    def others(self) -> tuple[Rpc, ...]:
        """The endpoints other than the one that answered this thread last."""
        answered = getattr(self._answered, "last", self._endpoints[0])
        return tuple(endpoint for endpoint in self._endpoints if endpoint is not answered)

    @property
    def every(self) -> tuple[Rpc, ...]:
        """All endpoints, the one in use first."""
        return tuple(self._endpoints)

    def call(self, method: str, *params: Any) -> Any:
        """Calls ``Rpc.call`` on the first endpoint that answers."""
        return self._first(lambda endpoint: endpoint.call(method, *params))

    def batch(self, requests: Sequence[RpcRequest]) -> list[Any]:
        """Calls ``Rpc.batch`` on the first endpoint that answers; all answers are from one endpoint."""
        return self._first(lambda endpoint: endpoint.batch(requests))

    def close(self) -> None:
        """Closes the connections to all endpoints."""
        for endpoint in self._endpoints:
            endpoint.close()

    def _first(self, ask: Callable[[Rpc], Answer]) -> Answer:
        failure: Unavailable | None = None
        for _ in range(len(self._endpoints)):
            endpoint = self._endpoints[0]
            IN_USE.set(self._place[id(endpoint)])
            try:
                self._ready(endpoint)
                self._answered.last = endpoint
                with SECONDS.labels(str(self._place[id(endpoint)])).time():
                    return ask(endpoint)
            except RpcFault:
                raise
            except Unavailable as error:
                failure = error
                FAILURES.labels(str(self._place[id(endpoint)])).inc()
                with self._turning:
                    if self._endpoints[0] is endpoint:  # else another thread moved on already
                        self._endpoints = [*self._endpoints[1:], endpoint]
        assert failure is not None
        raise failure

    def _ready(self, endpoint: Rpc) -> None:
        if id(endpoint) in self._checked:
            return
        try:
            self._check(endpoint)
        except Misconfigured as error:
            if not self._checked:
                raise
            raise Unavailable(f"cannot use the RPC at {endpoint.url}: {error}") from error
        self._checked.add(id(endpoint))
