"""Commands typed at the front door against a real chain."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.chain.reading.client import Chain
from protocol.node.wallet import Keystores
from tests.conftest import Anvil
from tests.typing_in import Typed, typed_here

Assize = Callable[..., Typed]


@pytest.fixture
def assize(chain: Chain, anvil: Anvil, tmp_path: Path) -> Assize:
    """Runs a command as a person would, with one funded owner ``alice`` and a node key ``box``."""
    keystores = Keystores(tmp_path / "keystores")
    for name in ("alice", "box"):
        anvil.fund(keystores.create(name, "pw", scrypt_n=2**4).address)
    chain.deployment.save(tmp_path / "addresses.json")
    (tmp_path / "password").write_text("pw\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")} | {
        "ASSIZE_PROFILE": "",
        "ASSIZE_RPC_URL": anvil.url,
        "ASSIZE_ADDRESSES": str(tmp_path / "addresses.json"),
        "ASSIZE_KEYSTORE_DIR": str(keystores.directory),
        "ASSIZE_KEYSTORE": "alice",
        "ASSIZE_PASSWORD_FILE": str(tmp_path / "password"),
        "ASSIZE_STATE_DIR": str(tmp_path / "state"),
    }

    def run(*words: object, **changed: str) -> Typed:
        return typed_here([str(word) for word in words], environment | changed)

    return run
