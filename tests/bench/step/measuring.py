"""Memory and time of this process, from what the kernel counts. Free of torch and of the product."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path


def status_mib(field: str) -> float:
    """Returns a field of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def timed(step: Callable[[], None], runs: int) -> dict[str, float]:
    """Returns median seconds of processor (``cpu``) and ``wall`` time of so many steps, after one not counted."""
    cpu, wall = [], []
    step()
    for _ in range(runs):
        began = time.process_time(), time.perf_counter()
        step()
        cpu.append(time.process_time() - began[0])
        wall.append(time.perf_counter() - began[1])
    return {"cpu": statistics.median(cpu), "wall": statistics.median(wall)}


class Peak:
    """The most memory that this process held while the block ran, in MiB, whole and beyond what it held before."""

    def __init__(self) -> None:
        self.mib = self.before = 0.0

    def __enter__(self) -> Peak:
        self.before = status_mib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        return self

    def __exit__(self, *_: object) -> None:
        self.mib = status_mib("VmHWM")

    @property
    def added(self) -> float:
        """The most beyond what was held before."""
        return self.mib - self.before
