"""Commands typed at the front door against a real chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.reading.client import Chain
from protocol.node.wallet import Keystores
from tests.conftest import ROOT, Anvil

Assize = Callable[..., Any]


class Outcome:
    """What a command left."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


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

    def run(*words: object, **changed: str) -> Outcome:
        line = [sys.executable, "assize.py", *map(str, words)]
        return Outcome(
            subprocess.run(line, cwd=ROOT, env=environment | changed, capture_output=True, text=True, timeout=60)
        )

    return run
