"""The worker's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from protocol.errors import Misconfigured
from protocol.node.settings import AmountText, NodeSettings, settings_config
from protocol.wire.rules import DEFAULT_ENGINE
from worker.availability import QuietHours
from worker.engines.registry import ENGINES, find_engine


def _known(engine: str) -> str:
    try:
        return find_engine(engine).name
    except Misconfigured as error:
        raise ValueError(str(error)) from error


def _hours(text: str) -> str:
    try:
        QuietHours.parse(text)
    except Misconfigured as error:
        raise ValueError(str(error)) from error
    return text


class WorkerSettings(NodeSettings):
    """``ASSIZE_WORKER_…``; the shared ones are those of ``NodeSettings``.

    Args:
        run: run to work for; the node must have joined it.
        coordinator_url: base URL of the run's coordinator; empty takes the one that the run names on chain.
        engine: name of the engine that generates; the run's rules list those they allow.
        device: device the engine computes on.
        tensor_parallel: devices over which each layer is divided; engines that can only.
        pipeline_parallel: groups of such devices through which the layers go in turn; engines that can only.
        wait_seconds: how long one request for assignments may wait for an answer.
        heartbeat_seconds: time between heartbeats.
        drain_seconds: longest time after SIGTERM to hand in the jobs it has; 0 ends it after the current step.
        quiet_hours: hours of the day in this machine's time in which to take no new jobs, such as 22:00-06:00.
        weights_mib_per_second: most MiB a second to receive of weights, at least 1; 0 for no cap.
        weights_disk_gib: most GiB that weights may take on disk, old versions included; 0 for no cap. It
            must have room for the run's async level and two more versions.
        weights_from: more sources of weights, such as other nodes, besides the relays that the coordinator names.
        uploads_to: URLs of object stores, such as http://10.0.0.5:9000, to which a coordinator may have artifacts sent
            though their addresses are not public.
        serve_weights: host:port at which to serve the versions this node holds to others; empty for not at all.
        least_price: least price of a unit for which to take jobs, such as 5wei; 0 for any.
        traps: trap file of the run's requester, whose own worker this is; it plants the faults that the file names.
    """

    model_config = settings_config("ASSIZE_WORKER_")

    run: int
    coordinator_url: str = ""
    engine: Annotated[str, AfterValidator(_known)] = DEFAULT_ENGINE
    device: Literal["cpu", "cuda"] = "cpu"
    tensor_parallel: int = Field(default=1, ge=1, le=64)
    pipeline_parallel: int = Field(default=1, ge=1, le=64)
    wait_seconds: float = 2.0
    heartbeat_seconds: float = 5.0
    drain_seconds: float = Field(default=600, ge=0)
    quiet_hours: Annotated[str, AfterValidator(_hours)] = ""
    weights_mib_per_second: float = Field(default=0, ge=0)
    weights_disk_gib: float = Field(default=0, ge=0)
    weights_from: list[str] = Field(default_factory=list)
    uploads_to: list[str] = Field(default_factory=list)
    serve_weights: str = ""
    least_price: AmountText = "0"
    traps: Path | None = None

    @field_validator("weights_mib_per_second")
    @classmethod
    def _at_least_one(cls, value: float) -> float:
        if 0 < value < 1:
            raise ValueError("expected 0, or at least 1 MiB a second: slower sources count as failed")
        return value

    @field_validator("tensor_parallel", "pipeline_parallel")
    @classmethod
    def _divisible(cls, value: int, info: ValidationInfo) -> int:
        engine = info.data.get("engine")
        if value > 1 and engine in ENGINES and not ENGINES[engine].parallel:
            able = ", ".join(entry.name for entry in ENGINES.values() if entry.parallel)
            raise ValueError(f"engine {engine!r} computes on one device: expected 1, or engine {able}")
        if value > 1 and info.data.get("device") == "cpu":
            raise ValueError("a model is divided over GPUs only: expected 1, or device 'cuda'")
        return value

    @property
    def parallel(self) -> int:
        """Devices that one engine computes on."""
        return self.tensor_parallel * self.pipeline_parallel


class EstimateSettings(WorkerSettings):
    """Settings of an estimate: the same names, without a key."""

    keystore: str = ""
