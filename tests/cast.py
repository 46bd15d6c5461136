"""Foundry's real `cast`, of the version that anvil and forge have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

PASSWORD = "pw"


def cast(*words: object, **environment: str) -> str:
    """What a command prints."""
    (binary,) = sorted((ROOT / "contracts" / "node_modules" / "@foundry-rs").glob("cast-*/bin/cast"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ETH_", "ASSIZE_"))}
    line = [str(binary), *map(str, words)]
    done = subprocess.run(line, env=clean | environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cast_key(folder: Path, name: str) -> str:
    """Makes a key as people do, with a keystore in ``folder``; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    cast("wallet", "new", folder, name, "--unsafe-password", PASSWORD)
    return cast("wallet", "address", "--keystore", folder / name, "--password", PASSWORD)


def signed_by_cast(unsigned: Mapping[str, Any], keystore: Path, url: str) -> str:
    """The raw transaction."""
    fees = ("--gas-price", unsigned["maxFeePerGas"], "--priority-gas-price", unsigned["maxPriorityFeePerGas"])
    fields = ("--value", unsigned["value"], "--nonce", unsigned["nonce"], "--gas-limit", unsigned["gas"], *fees)
    key = ("--keystore", keystore, "--password", PASSWORD, "--chain", unsigned["chainId"], "--rpc-url", url)
    return cast("mktx", *fields, *key, unsigned["to"], *([unsigned["data"]] if unsigned["data"] != "0x" else []))
