"""What a worker is told at start."""

from __future__ import annotations

from typing import Literal

from protocol.node.settings import NodeSettings, settings_config


class WorkerSettings(NodeSettings):
    """``ASSIZE_WORKER_…``; the shared ones are those of ``NodeSettings``.

    Args:
        coordinator_url: base URL of the run's coordinator.
        run: the run to work for; the node must have joined it.
        engine: what generates; the run's rules name those it allows.
        device: where the engine computes.
        wait_seconds: how long one question for assignments may wait for an answer.
        heartbeat_seconds: time between heartbeats.
    """

    model_config = settings_config("ASSIZE_WORKER_")

    coordinator_url: str
    run: int
    engine: Literal["transformers", "vllm"] = "transformers"
    device: Literal["cpu", "cuda"] = "cpu"
    wait_seconds: float = 2.0
    heartbeat_seconds: float = 5.0
