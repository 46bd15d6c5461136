"""Real keys and real servers for the protocol's tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from eth_account import Account


@dataclass(frozen=True)
class KeySigner:
    """A `Signer` over a key made for one test."""

    account: Any

    @property
    def address(self) -> str:
        return str(self.account.address)

    def sign_typed(self, message: dict[str, Any]) -> bytes:
        return bytes(self.account.sign_typed_data(full_message=message).signature)


class Served:
    """An ASGI app on a free port of this machine."""

    def __init__(self, app: Any, port: int = 0) -> None:
        self._socket = socket.socket(proto=socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(5)
        self._socket.close()


@pytest.fixture
def signer() -> KeySigner:
    return KeySigner(Account.create())


@pytest.fixture
def other_signer() -> KeySigner:
    return KeySigner(Account.create())


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Call it with an ASGI app: served until the test ends, or until `.stop()`."""
    running: list[Served] = []

    def start(app: Any, port: int = 0) -> Served:
        running.append(Served(app, port))
        return running[-1]

    yield start
    for served in running:
        served.stop()
