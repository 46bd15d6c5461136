"""Settings of a validator and of its background workers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.node.settings import NodeSettings, settings_config


class ValidatorSettings(NodeSettings):
    """``ASSIZE_VALIDATOR_…`` settings, on top of the shared ``NodeSettings``.

    Args:
        coordinator_urls: base URLs of coordinators, which serve rules, relays and evidence; each takes precedence over
            the one that its run names on chain.
        sources: base URLs to fetch weights from; empty uses the relays that the coordinator names.
        device: device of the prefill.
        queue_url: Redis of the background workers; empty judges in this process. Write access to it decides this
            validator's votes: use a Redis of your own, behind a password.
        interval_seconds: pause between polls of the chain.
        reserve_seconds: time before the commit deadline at which to stop waiting for judgements.
        patience_seconds: time after the close during which a silent store is asked again, if others have answered.
        nudge_seconds: time after which this validator takes an overdue step that anyone may take.
        heartbeat_seconds: time between heartbeats.
        drain_seconds: longest time after SIGTERM to vote in the seats it has; 0 ends it after the current step.
    """

    model_config = settings_config("ASSIZE_VALIDATOR_")

    coordinator_urls: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    queue_url: str = ""
    interval_seconds: float = 0.5
    reserve_seconds: float = 3.0
    patience_seconds: float = 20.0
    nudge_seconds: float = 5.0
    heartbeat_seconds: float = 5.0
    drain_seconds: float = Field(default=600, ge=0)


class BackgroundSettings(ValidatorSettings):
    """Settings of a background worker: the same names, so that one file serves both, without key and chain.

    Args:
        queue_url: the daemon's queue; required.
        state_dir: state folder of this worker alone; each worker on a machine needs its own.
        device: device of this worker's prefill.
    """

    queue_url: str = Field(min_length=1)
    addresses: Path = Path()
    keystore: str = ""


class DryRunSettings(ValidatorSettings):
    """Settings of a dry run: the same names, without a key."""

    keystore: str = ""
