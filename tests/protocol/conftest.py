"""Real keys and real servers for the protocol's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from eth_account import Account

from protocol.transport.listening import listen
from tests.conftest import Served


@dataclass(frozen=True)
class KeySigner:
    """A `Signer` over a key made for one test."""

    account: Any

    @property
    def address(self) -> str:
        return str(self.account.address)

    def sign_typed(self, message: dict[str, Any]) -> bytes:
        return bytes(self.account.sign_typed_data(full_message=message).signature)


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
        running.append(Served(app, listen("127.0.0.1", port)))
        return running[-1]

    yield start
    for served in running:
        served.stop()
