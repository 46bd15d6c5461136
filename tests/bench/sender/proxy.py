"""An RPC that fails one request in ten: half of them unheard, half of them after they were carried out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import httpx

UNHEARD, ANSWER_LOST = 0.05, 0.05


@contextmanager
def losing_rpc(upstream: str, seed: int) -> Iterator[str]:
    """Yields the URL of an endpoint before ``upstream`` that loses requests and answers."""
    chance, lock, client = Random(seed), threading.Lock(), httpx.Client(timeout=30, trust_env=False)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                luck = chance.random()
            if luck < UNHEARD:
                self.close_connection = True
                return
            answer = client.post(upstream, content=body, headers={"content-type": "application/json"}).content
            if luck < UNHEARD + ANSWER_LOST:
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that was killed is part of it."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            client.close()
