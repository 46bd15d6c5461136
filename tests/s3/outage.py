"""A relay of connections in front of a store, which answers 503 while it is told to, or nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

REFUSAL = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Outage:
    """Passes bytes on as they come, so that signed heads stay as they were; ``url`` is where it listens."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._serve: Callable[[socket.socket], None] = self._relay
        self._open: set[socket.socket] = set()
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def down(self, silent: bool = False) -> Iterator[None]:
        """The store answers 503 meanwhile, or not at all."""
        self._serve = self._keep_waiting if silent else self._refuse
        self._cut_all()
        try:
            yield
        finally:
            self._serve = self._relay
            self._cut_all()

    def close(self) -> None:
        """Ends it."""
        _cut(self._listener)
        self._listener.close()
        self._cut_all()

    def _cut_all(self) -> None:
        for connection in list(self._open):
            _cut(connection)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream) as server:
            both = {client, server}
            self._open |= both
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()
            self._open -= both

    def _keep_waiting(self, client: socket.socket) -> None:
        self._open.add(client)
        with client, suppress(OSError):
            while client.recv(65536):
                pass
        self._open.discard(client)

    def _refuse(self, client: socket.socket) -> None:
        """Takes one request whole, since an answer before its end may be lost, and refuses it."""
        self.refused += 1
        with client, suppress(OSError):
            head, _, body = b"", b"", b""
            while b"\r\n\r\n" not in head and (piece := client.recv(65536)):
                head += piece
            head, _, body = head.partition(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            ]
            left = int(lengths[0]) - len(body) if lengths else 0
            while left > 0 and (piece := client.recv(65536)):
                left -= len(piece)
            client.sendall(REFUSAL)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    _cut(sink)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
