"""What a validator is told at start."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.node.settings import NodeSettings, settings_config


class ValidatorSettings(NodeSettings):
    """``ASSIZE_VALIDATOR_…``; the shared ones are those of ``NodeSettings``.

    Args:
        coordinator_url: base URL of the coordinator, which names rules and relays and keeps evidence.
        sources: base URLs to fetch weights from; empty takes the relays that the coordinator names.
        device: where the prefill runs.
        queue_url: Redis through which background workers take the judging off this process; empty judges here. Whoever
            can write there decides this validator's votes: a Redis of one's own, behind a password.
        interval_seconds: pause between looks at the chain.
        reserve_seconds: kept back from the commit deadline: what is not judged by then is not waited for.
        patience_seconds: how long after the close a silent store is asked again, while others have answered.
        nudge_seconds: a step anyone may take and nobody has taken for this long, this validator takes.
        heartbeat_seconds: time between heartbeats.
    """

    model_config = settings_config("ASSIZE_VALIDATOR_")

    coordinator_url: str
    sources: tuple[str, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    queue_url: str = ""
    interval_seconds: float = 0.1
    reserve_seconds: float = 3.0
    patience_seconds: float = 20.0
    nudge_seconds: float = 5.0
    heartbeat_seconds: float = 5.0


class BackgroundSettings(ValidatorSettings):
    """The same names, so that one file serves both; a background worker asks for neither key nor chain.

    Args:
        queue_url: the daemon's; without it there is nothing to do.
        state_dir: this worker's own: a second one on the same machine has another.
        device: this machine's.
    """

    queue_url: str = Field(min_length=1)
    addresses: Path = Path()
    keystore: str = ""
