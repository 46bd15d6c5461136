"""Figures that a trainer writes to its ``metrics.jsonl``: reward, accuracy and tokens by version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import accessing

METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class TrainerMetrics:
    """Mean reward and held-out accuracy by version, and tokens trained on in all."""

    reward: dict[int, float]
    accuracy: dict[int, float]
    tokens: int


def read_metrics(path: Path) -> TrainerMetrics:
    """Reads the file, or that in a trainer's state folder; a line that is half written is left out.

    Raises:
        Misconfigured: it cannot be read.
    """
    path = path / METRICS_FILE if path.is_dir() else path
    with accessing(f"read the trainer's metrics {path}"):
        lines = path.read_bytes().splitlines()
    reward: dict[int, float] = {}
    accuracy: dict[int, float] = {}
    tokens: dict[int, int] = {}
    for line in lines:
        try:
            record: dict[str, Any] = json.loads(line)
            if record["kind"] == "step":
                reward[record["version"]], tokens[record["version"]] = float(record["reward"]), int(record["tokens"])
            elif record["kind"] == "evaluation":
                accuracy[record["version"]] = float(record["accuracy"])
        except (ValueError, KeyError, TypeError):
            continue
    return TrainerMetrics(reward, accuracy, sum(tokens.values()))
