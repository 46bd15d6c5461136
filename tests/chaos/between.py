"""Servers that stand between the network's processes, pass everything on, and interfere where they are told to."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic_core import from_json, to_json

UPSTREAM_SECONDS = 60
DRIP_SECONDS = 0.1
KEPT_HEADERS = ("content-type", "content-range", "etag", "retry-after")


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request.

    ``who`` sent it, to which ``endpoint`` of its, where that is known: the chain is reached by paths of each one's own.
    """

    who: str
    endpoint: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """The JSON-RPC requests in it."""
        parsed = from_json(self.body) if self.body else []
        return tuple(parsed) if isinstance(parsed, list) else (parsed,)

    @property
    def methods(self) -> tuple[str, ...]:
        """What they call."""
        return tuple(str(call["method"]) for call in self.calls)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. Where ``promised`` is more than there is of ``body``, the connection ends in the middle.

    A ``dripped`` body is sent byte by byte, ten in a second.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    promised: int | None = None
    dripped: bool = False

    @property
    def taken(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    def with_results(self, changed: Callable[[Mapping[str, Any]], Any]) -> Answer:
        """The JSON-RPC answers, each as ``changed`` makes it."""
        parsed = from_json(self.body)
        made = [changed(one) for one in parsed] if isinstance(parsed, list) else changed(parsed)
        return replace(self, body=to_json(made))


Forward = Callable[[Asked], Answer]
"""Passes a request on, and returns what came of it."""

Interference = Callable[[Asked, Forward], Answer | None]
"""Answers a request; None hangs up."""

Heard = Callable[[Asked, Answer], None]
"""Told of every answer before it is given."""


def pass_on(asked: Asked, forward: Forward) -> Answer | None:
    """No interference."""
    return forward(asked)


class Between:
    """One server in front of another, at ``url``; it listens on a port of its own choice unless one is given.

    ``host`` is the address at which it does so.
    """

    def __init__(self, upstream: int, heard: Heard | None = None, listen_on: int = 0, host: str = "127.0.0.1") -> None:
        self._upstream = upstream
        self._heard = heard
        self._kept = threading.local()
        self._interferences: list[Interference] = []
        self._server = _Server((host, listen_on), self._handler())
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._let_go()
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def interfering(self, interference: Interference) -> Iterator[None]:
        """Interferes for as long as it is open; of several, the last one opened does."""
        self._interferences.append(interference)
        try:
            yield
        finally:
            self._interferences.remove(interference)

    def answer(self, asked: Asked) -> Answer | None:
        """What a request gets."""
        interference = self._interferences[-1] if self._interferences else pass_on
        answer = interference(asked, self.forward)
        if answer is not None and self._heard is not None:
            self._heard(asked, answer)
        return answer

    def forward(self, asked: Asked) -> Answer:
        """Passes a request on over this thread's connection; a lost one is made anew once."""
        try:
            return self._forward(asked)
        except (http.client.HTTPException, OSError):
            self._let_go()
            return self._forward(asked)

    def _let_go(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._kept, "connection", None)
        if connection is not None:
            connection.close()
        self._kept.connection = None

    def _forward(self, asked: Asked) -> Answer:
        connection = getattr(self._kept, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=UPSTREAM_SECONDS)
            self._kept.connection = connection
        hop = {"host", "connection", "content-length", "transfer-encoding"}
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in hop}
        connection.request(asked.method, asked.path, asked.body or None, headers)
        response = connection.getresponse()
        kept = {name: value for name, value in response.getheaders() if name.lower() in KEPT_HEADERS}
        return Answer(response.status, kept, response.read())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                who, endpoint, path = _sender(self.path)
                try:
                    answer = between.answer(Asked(who, endpoint, self.command, path, dict(self.headers), body))
                except (http.client.HTTPException, OSError):
                    answer = None  # whoever is behind is down, and so this is
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(answer.promised or len(answer.body)))
                self.end_headers()
                self.close_connection |= answer.promised is not None
                if self.command != "HEAD":
                    self._send(answer)

            def _send(self, answer: Answer) -> None:
                for place in range(len(answer.body) if answer.dripped else 0):
                    self.wfile.write(answer.body[place : place + 1])
                    self.wfile.flush()
                    time.sleep(DRIP_SECONDS)
                if not answer.dripped:
                    self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_HEAD = _serve

            def finish(self) -> None:
                between._let_go()
                super().finish()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that was killed is part of it."""


def path_of(who: str, endpoint: int) -> str:
    """What a process adds to a server's URL to be told apart."""
    return f"/as/{who}/{endpoint}"


def _sender(path: str) -> tuple[str, int, str]:
    if not path.startswith("/as/"):
        return "", 0, path
    who, endpoint, *rest = path.removeprefix("/as/").split("/", 2)
    return who, int(endpoint), "/" + "".join(rest)


def error_answer(asked: Asked, code: int, message: str) -> Answer:
    """A JSON-RPC error for every request in it."""
    errors: Sequence[Any] = [
        {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}} for call in asked.calls
    ]
    body = errors if asked.body.lstrip().startswith(b"[") else errors[0]
    return Answer(200, {"content-type": "application/json"}, to_json(body))
