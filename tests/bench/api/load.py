"""Requests made ready beforehand, sent over a few connections as fast as they are answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

CONNECTIONS = 8


def raw_get(path: str, headers: Mapping[str, str]) -> bytes:
    """A GET as bytes."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def per_second(port: int, requests: Sequence[bytes]) -> float:
    """Requests answered a second; an answer other than 200 ends it."""
    shares = [requests[first::CONNECTIONS] for first in range(CONNECTIONS)]
    started = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda share: _send(port, share), shares))
    return len(requests) / (time.perf_counter() - started)


def _send(port: int, requests: Sequence[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            connection.sendall(request)
            answer = _answer(connection)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode(errors="replace"))


def _answer(connection: socket.socket) -> bytes:
    read = b""
    while True:
        read += connection.recv(65536)
        head, ended, body = read.partition(b"\r\n\r\n")
        if ended and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return read
