"""Servers that send a byte now and then: each is in time, the whole never is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@contextmanager
def dripping(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that treats each connection as ``serve`` does; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=drip, args=(connection,), daemon=True).start()

        def drip(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def drip_head(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def drip_body(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(OK)
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def drip(write: Callable[[bytes], object]) -> None:
    """Sends a byte ten times a second, until the other end has gone."""
    with suppress(OSError):
        while True:
            write(b"x")
            time.sleep(0.1)
