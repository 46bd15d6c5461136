"""Figures of a training run: a line for each step and evaluation in ``metrics.jsonl``, Prometheus, and alarms."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from trainer.alarms import StepFigures, alarms
from trainer.evaluate import Evaluation
from trainer.sink import Sink

_STEP = {
    "version": "Newest version",
    "loss": "Loss of the last step",
    "tokens": "Completion tokens of the last step",
    "staleness": "Mean age of its tokens, in versions",
    "clip_ratio": "Share of its tokens whose gradient was clipped",
    "ratio": "Mean ratio of the policy to the version that sampled a token",
    "entropy": "Mean entropy, in nats",
    "kl": "Mean divergence from version 0, in nats",
    "gradient_norm": "Norm of the last gradient before clipping",
    "learning_rate": "Learning rate of the last optimizer step",
    "mismatch": "Mean difference of the logprobs that workers reported from those recomputed, in nats",
    "reward": "Mean reward of the rollouts at hand",
    "length": "Mean tokens of a completion",
    "truncated": "Share of completions as long as the token limit",
    "groups": "Groups trained on",
    "groups_idle": "Groups without advantages",
    "groups_left": "Groups left for the next step",
    "groups_stale": "Groups that came too late",
}
GAUGES = {name: Gauge(f"assize_trainer_{name}", words) for name, words in _STEP.items()}
ACCURACY = Gauge("assize_trainer_accuracy", "Accuracy on held-out problems at the last evaluation")
PASS_AT_K = Gauge("assize_trainer_pass_at_k", "Share of held-out problems with a right completion, likewise")
REWARD_OF = Gauge("assize_trainer_source_reward", "Mean reward of the rollouts at hand, by source of tasks", ["source"])
SKIPPED = Counter("assize_trainer_skipped", "Optimizer steps skipped because a gradient was not finite")
SECONDS = Counter("assize_trainer_seconds", "Seconds by part of a step", ["part"])
ALARMS = Gauge("assize_trainer_alarm", "1 while an alarm is raised", ["alarm"])
NAMES = ("not_finite", "entropy", "reward", "stale", "starved")


class MetricsLog:
    """Figures of one run, in the trainer's state folder. A restarted trainer goes on in the same file."""

    def __init__(self, path: Path, sink: Sink | None = None) -> None:
        self._path, self._sink = path, sink
        self._steps: list[StepFigures] = []
        self._raised: dict[str, str] = {}
        self._log = structlog.get_logger("trainer.metrics")

    def step(self, figures: dict[str, Any]) -> None:
        """Records a step by the names of ``GAUGES``.

        With ``skipped``, the rewards of ``sources`` by name, and the ``seconds`` of its parts.
        """
        self._write("step", figures)
        for name, gauge in GAUGES.items():
            gauge.set(figures[name])
        for source, reward in figures["sources"].items():
            REWARD_OF.labels(source).set(reward)
        SKIPPED.inc(figures["skipped"])
        for part, seconds in figures["seconds"].items():
            SECONDS.labels(part).inc(seconds)
        own = {name: figures[name] for name in ("skipped", "entropy", "reward", "groups", "groups_stale")}
        parts = figures["seconds"]
        self._steps.append(StepFigures(**own, waited_seconds=parts.get("wait", 0.0), seconds=sum(parts.values())))
        self._raise(alarms(self._steps))

    def evaluation(self, version: int, found: Evaluation, seconds: float) -> None:
        """Records an evaluation, and the seconds since it was asked for."""
        self._write("evaluation", {"version": version} | asdict(found) | {"seconds": round(seconds, 3)})
        ACCURACY.set(found.accuracy)
        PASS_AT_K.set(found.pass_at_k)

    def close(self) -> None:
        """Ends what the sink has begun."""
        if self._sink is not None:
            self._sink.close()

    def _raise(self, found: dict[str, str]) -> None:
        """Logs and records alarms that were not raised before, and shows those that are."""
        for name in found.keys() - self._raised.keys():
            self._log.warning("alarm", alarm=name, why=found[name])
            self._write("alarm", {"alarm": name, "why": found[name]})
        for name in NAMES:
            ALARMS.labels(name).set(name in found)
        self._raised = found

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        line = {"kind": kind, "time": round(time.time(), 3), **fields}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self._sink is not None:
            self._sink.put(kind, fields)
