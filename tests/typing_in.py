"""Commands typed at the front door within this process: a moment each, where a process of its own takes a second."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from assize import front_door
from protocol.chain.deployment import Deployment
from protocol.node.wallet import Keystores
from tests.conftest import Anvil


@dataclass(frozen=True)
class Typed:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Desk:
    """A person's folder, with a funded owner ``alice``, a node key ``box`` and the network's address file."""

    folder: Path
    environment: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path, anvil: Anvil, deployment: Deployment) -> Desk:
        keystores = Keystores(folder / "keystores")
        for name in ("alice", "box"):
            anvil.fund(keystores.create(name, "pw", scrypt_n=2**4).address)
        deployment.save(folder / "addresses.json")
        (folder / "password").write_text("pw\n")
        told = {
            "ASSIZE_RPC_URL": anvil.url,
            "ASSIZE_ADDRESSES": folder / "addresses.json",
            "ASSIZE_KEYSTORE_DIR": keystores.directory,
            "ASSIZE_KEYSTORE": "alice",
            "ASSIZE_PASSWORD_FILE": folder / "password",
            "ASSIZE_STATE_DIR": folder / "state",
            "HOME": folder,
            "COLUMNS": 80,
        }
        foreign = ("ASSIZE_", "ETH_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return cls(folder, clean | {name: str(value) for name, value in told.items()})

    def types(self, *words: object, stdin: str | bytes = "", **changed: object) -> Typed:
        """Runs a command to its end."""
        line = [str(word) for word in words]
        told = {name: str(value) for name, value in changed.items() if value is not None}
        environment = {name: value for name, value in self.environment.items() if name not in changed} | told
        return typed_here(line, environment, stdin)


def typed_here(line: list[str], environment: Mapping[str, str], stdin: str | bytes = "") -> Typed:
    """Runs a command to its end under an environment that is all it has; none that serves, nor takes signals."""
    out, err = io.StringIO(), io.StringIO()
    given = stdin.encode() if isinstance(stdin, str) else stdin
    code: object = 0
    with (
        warnings.catch_warnings(action="ignore", category=ResourceWarning),  # the end of its process closes everything
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        gc.disable()  # what the command makes stays young, so collecting it looks through nothing else
        try:
            front_door(line)(line)
        except SystemExit as left:
            code = left.code or 0
        finally:
            gc.enable()
        if code:
            gc.collect(0)
    assert isinstance(code, int)
    return Typed(code, out.getvalue(), err.getvalue())
