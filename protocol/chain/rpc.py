"""JSON-RPC over HTTP: one request, or many in one round trip.

Answers are plain JSON values, which the caller converts. Every failure is ``Unavailable``: the endpoint did not answer,
not in time, or at too great a length; or it answered with a JSON-RPC error (``RpcFault``, with its code and data).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic_core import from_json

from protocol.certificates import certificate_authorities
from protocol.deadlines import bounded, within
from protocol.errors import Misconfigured, Unavailable
from protocol.masking import masked

TIMEOUT_SECONDS = 10.0
"""Longest wait for one answer, apart from the time it takes at the lowest speed."""

LEAST_BYTES_PER_SECOND = 1 << 20
MOST_BYTES = 64 << 20
"""Most bytes of an answer: at the lowest speed, a dripping endpoint holds its caller for about a minute."""

MOST_WAITING_SECONDS = 10.0
"""Longest time in all for which a request waits because its endpoint asks to slow down and says for how long."""

LEAST_WAIT_SECONDS = 0.1
"""Shortest wait, also where the endpoint names none."""

MOST_IN_BATCH = 200
"""Most requests in one round trip. Providers allow between a hundred and a thousand."""


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """One JSON-RPC request: the method and its positional parameters."""

    method: str
    params: tuple[Any, ...] = ()


class RpcFault(Unavailable):
    """The endpoint answered with a JSON-RPC error. ``data`` is the revert payload, if any."""

    def __init__(self, method: str, code: int, message: str, data: bytes | None) -> None:
        super().__init__(f"the RPC refused {method}: {message} (code {code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


class Rpc:
    """A connection to one RPC endpoint; ``round_trips`` counts HTTP requests. Safe to share between threads."""

    def __init__(
        self, url: str, timeout_seconds: float = TIMEOUT_SECONDS, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url
        self._timeout_seconds = timeout_seconds
        verify = certificate_authorities()
        self._http = bounded(httpx.Client(timeout=timeout_seconds, trust_env=False, transport=transport, verify=verify))
        self._ids = itertools.count(1)
        self.round_trips = 0

    @property
    def url(self) -> str:
        """The endpoint's URL as messages show it, without credentials. Setting it moves on to another endpoint."""
        return self._shown

    @url.setter
    def url(self, address: str) -> None:
        self._address, self._shown = address, masked(address)

    def call(self, method: str, *params: Any) -> Any:
        """Sends one request and returns its result.

        Raises:
            Unavailable: the endpoint did not answer, or not in JSON.
            RpcFault: the endpoint answered with an error.
            Misconfigured: the URL is invalid.
        """
        answer = self._post(self._body(RpcRequest(method, params)))
        return _result(method, answer)

    def batch(self, requests: Sequence[RpcRequest]) -> list[Any]:
        """Sends the requests together and returns their results in order, with errors as ``RpcFault`` values.

        Raises:
            Unavailable: the endpoint did not answer, or left a request unanswered.
        """
        parts = [requests[start : start + MOST_IN_BATCH] for start in range(0, len(requests), MOST_IN_BATCH)]
        return [answer for part in parts for answer in self._batch(part)]

    def results(self, requests: Sequence[RpcRequest]) -> list[Any]:
        """Sends the requests together and returns their results in order; raises the first ``RpcFault``."""
        answers = self.batch(requests)
        for fault in answers:
            if isinstance(fault, RpcFault):
                raise fault
        return answers

    def _batch(self, requests: Sequence[RpcRequest]) -> list[Any]:
        bodies = [self._body(request) for request in requests]
        answers = self._post(bodies)
        if not isinstance(answers, list):
            _result(requests[0].method, answers)  # usually one error for the whole batch
            raise Unavailable(f"the RPC at {self.url} returned one answer to {len(requests)} requests")
        by_id = {answer.get("id"): answer for answer in answers if isinstance(answer, dict)}
        missing = [request.method for request, body in zip(requests, bodies, strict=True) if body["id"] not in by_id]
        if missing:
            raise Unavailable(f"the RPC at {self.url} left {len(missing)} of {len(requests)} requests unanswered")
        return [
            _result_or_fault(request.method, by_id[body["id"]]) for request, body in zip(requests, bodies, strict=True)
        ]

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _body(self, request: RpcRequest) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": request.method, "params": list(request.params)}

    def _post(self, body: Any) -> Any:
        try:
            status, content = self._patiently(body)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise Misconfigured(f"invalid RPC URL {self.url!r}: expected http(s)://host") from error
        except httpx.HTTPError as error:
            raise Unavailable(
                f"no RPC answers at {self.url}: {str(error) or type(error).__name__}; is the node running?"
            ) from error
        if status == httpx.codes.TOO_MANY_REQUESTS:
            raise Unavailable(f"the RPC at {self.url} asks to slow down (HTTP 429)")
        try:
            return from_json(content)  # takes two thirds of the time of the standard library
        except ValueError as error:
            raise Unavailable(f"invalid answer from {self.url}: expected JSON-RPC, got HTTP {status}") from error

    def _patiently(self, body: Any) -> tuple[int, bytes]:
        """Returns the answer's status and bytes; asks again after the time that the endpoint names, within bounds."""
        give_up = time.monotonic() + MOST_WAITING_SECONDS
        while True:
            self.round_trips += 1
            status, content, wait = self._answer(body)
            if status != httpx.codes.TOO_MANY_REQUESTS or wait is None or time.monotonic() + wait > give_up:
                return status, content
            time.sleep(wait)

    def _answer(self, body: Any) -> tuple[int, bytes, float | None]:
        """Returns the answer's status and bytes, and the seconds for which the endpoint asks to wait, if it does."""
        content = bytearray()
        with within(self._timeout_seconds) as deadline, self._http.stream("POST", self._address, json=body) as response:
            for piece in deadline.extended(response.iter_bytes(), LEAST_BYTES_PER_SECOND):
                content += piece
                if len(content) > MOST_BYTES:
                    raise Unavailable(f"the RPC at {self.url} sent more than {MOST_BYTES} bytes")
            return response.status_code, bytes(content), _seconds(response.headers.get("retry-after", ""))


def _seconds(text: str) -> float | None:
    """Returns the seconds of a ``Retry-After`` header; None if there are none, also where it names a date."""
    return max(float(text), LEAST_WAIT_SECONDS) if text.isascii() and text.isdecimal() and len(text) <= 6 else None


def _result(method: str, answer: Any) -> Any:
    value = _result_or_fault(method, answer)
    if isinstance(value, RpcFault):
        raise value
    return value


def _result_or_fault(method: str, answer: Any) -> Any:
    if not isinstance(answer, dict) or ("error" not in answer and "result" not in answer):
        raise Unavailable(f"invalid answer to {method}: expected a JSON-RPC result or error")
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    if not isinstance(error, dict):
        raise Unavailable(f"the RPC refused {method} with an error that is not JSON-RPC: {error!r:.80}")
    code = error.get("code")
    number = code if isinstance(code, int) else 0
    return RpcFault(method, number, str(error.get("message", "")), _revert_data(error.get("data")))


def _revert_data(data: Any) -> bytes | None:
    """Returns the revert payload, which some nodes nest one level deeper."""
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str) and data.startswith("0x"):
        with suppress(ValueError):
            return bytes.fromhex(data[2:])
    return None
