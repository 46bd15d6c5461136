"""Commands typed at the front door against a farm's chain and coordinator."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import ROOT
from tests.worker.farm import Farm


def typed(farm: Farm, *words: object, **changed: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a person on the farm's chain would, in a pipe of 80 columns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")} | {
        "ASSIZE_RPC_URL": farm.swarm.anvil.url,
        "ASSIZE_ADDRESSES": str(farm.directory / "addresses.json"),
        "ASSIZE_STATE_DIR": str(farm.directory / "state"),
    }
    line = [sys.executable, "assize.py", *map(str, words)]
    return subprocess.run(line, cwd=ROOT, env=environment | changed, capture_output=True, text=True, timeout=60)
