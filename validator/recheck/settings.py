"""Settings of a recheck."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from protocol.node.settings import NodeSettings, settings_config


class RecheckSettings(NodeSettings):
    """``ASSIZE_RECHECK_…`` settings, on top of the shared ``NodeSettings``. The key need not be a node's.

    Args:
        coordinator_urls: base URLs of coordinators, which serve rules, relays and evidence; each takes precedence over
            the one that its run names on chain.
        sources: base URLs to fetch weights from; empty uses the relays that the coordinator names.
        run: the run whose jobs are checked.
        share: share of its decided jobs that are checked.
        budget_wei: most deposits of appeals in a day, in wei of credits; 0 reports and never appeals.
        device: device of the prefill.
        interval_seconds: pause between polls of the chain.
        patience_seconds: time for which an artifact that nobody serves is asked for.
    """

    model_config = settings_config("ASSIZE_RECHECK_")

    coordinator_urls: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    run: int = Field(ge=1)
    share: float = Field(default=0.05, gt=0.0, le=1.0)
    budget_wei: int = Field(default=0, ge=0)
    device: Literal["cpu", "cuda"] = "cpu"
    interval_seconds: float = 1.0
    patience_seconds: float = 60.0
