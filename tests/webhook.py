"""A server that notices are posted to."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """A server that keeps what is posted to it, and answers ``status``."""

    received: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    port: int = 0
    stopped: Callable[[], None] = lambda: None

    def start(self) -> None:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if hook.status == 200:
                    hook.received.append(body)
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

        def stop() -> None:
            server.shutdown()
            server.server_close()

        self.stopped = stop

    @property
    def url(self) -> str:
        return f"json://user:s3cret@127.0.0.1:{self.port}/hook"

    def titles(self) -> Counter[str]:
        return Counter(each["title"] for each in self.received)


@contextmanager
def listening() -> Iterator[Webhook]:
    """A webhook that listens for as long as it is open."""
    made = Webhook()
    made.start()
    try:
        yield made
    finally:
        made.stopped()
