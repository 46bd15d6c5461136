"""A run's figures: on disk, for Prometheus, and an alarm once as long as it lasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from trainer.evaluate import Evaluation
from trainer.metrics import GAUGES, MetricsLog

FIGURES: dict[str, Any] = dict.fromkeys(GAUGES, 1.0) | {
    "skipped": 0,
    "sources": {"sums": 0.5},
    "groups_stale": 0,
    "seconds": {"wait": 1.0, "train": 3.0},
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_and_evaluations_are_lines_and_series(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.step(FIGURES | {"version": 7, "entropy": 0.25})
    metrics.evaluation(7, Evaluation(0.75, 1.0, 4, "1+1", "2", {"sums": 0.75}), 3.0)
    step, evaluation = lines(tmp_path / "metrics.jsonl")
    assert (step["kind"], step["version"], step["entropy"]) == ("step", 7, 0.25)
    assert evaluation | {"kind": "evaluation", "accuracy": 0.75, "prompt": "1+1", "completion": "2"} == evaluation
    assert REGISTRY.get_sample_value("assize_trainer_entropy") == 0.25
    assert REGISTRY.get_sample_value("assize_trainer_accuracy") == 0.75
    assert (REGISTRY.get_sample_value("assize_trainer_seconds_total", {"part": "train"}) or 0) >= 3
    series = {family.name for family in REGISTRY.collect() if family.name.startswith("assize_trainer_")}
    assert len(series) >= 15


def test_an_alarm_is_told_once_as_long_as_it_lasts(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    for skipped in (0, 1, 1, 0, 1):
        metrics.step(FIGURES | {"skipped": skipped})
        raised = REGISTRY.get_sample_value("assize_trainer_alarm", {"alarm": "not_finite"})
        assert raised == (skipped > 0)
    assert [line["alarm"] for line in lines(tmp_path / "metrics.jsonl") if line["kind"] == "alarm"] == [
        "not_finite"
    ] * 2
