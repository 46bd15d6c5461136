"""Commands typed at the front door against a farm's chain and coordinator."""

from __future__ import annotations

import os

from tests.typing_in import Typed, typed_here
from tests.worker.farm import Farm


def typed(farm: Farm, *words: object, **changed: str) -> Typed:
    """Runs a command as a person on the farm's chain would, in a pipe of 80 columns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")} | {
        "ASSIZE_PROFILE": "",
        "ASSIZE_RPC_URL": farm.swarm.anvil.url,
        "ASSIZE_ADDRESSES": str(farm.directory / "addresses.json"),
        "ASSIZE_STATE_DIR": str(farm.directory / "state"),
        "COLUMNS": "80",
    }
    return typed_here([str(word) for word in words], environment | changed)
