"""The offer that a worker's heartbeats carry: its device, its measured speed, and its least price."""

from __future__ import annotations

import time

from protocol.amounts import wei_of
from protocol.wire.api import Hardware, Offer
from worker.producer import Producer
from worker.settings import WorkerSettings

MEASURED_SECONDS = 3600.0
"""Time for which a measurement counts: a machine that was slow for a while gets jobs, and is measured, again."""


def offer_of(settings: WorkerSettings, hardware: Hardware, producer: Producer) -> Offer:
    """Returns the offer of a worker as it stands."""
    on_cuda = settings.device == "cuda"
    memory = hardware.accelerator_memory_bytes if on_cuda else hardware.memory_bytes
    name = ", ".join(sorted(set(hardware.accelerators))) if on_cuda else f"{hardware.cpu_cores} processor cores"
    pace, loaded = producer.pace, producer.loaded is not None
    if pace is not None and time.monotonic() - pace.ended > MEASURED_SECONDS:
        pace = None
    return Offer(
        device=name[:200],
        memory_bytes=memory,
        engine=settings.engine,
        canary=producer.engine.canary if loaded and any(producer.engine.canary) else None,
        tokens_per_second=None if pace is None else pace.tokens_per_second,
        tokens_per_job=None if pace is None else pace.tokens_per_job,
        least_price_wei=str(wei_of(settings.least_price)),
    )
