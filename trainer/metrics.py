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

GAUGES = {
    "version": Gauge("assize_trainer_version", "Newest version"),
    "loss": Gauge("assize_trainer_loss", "Loss of the last step"),
    "tokens": Gauge("assize_trainer_tokens", "Completion tokens of the last step"),
    "staleness": Gauge("assize_trainer_staleness", "Mean age of the tokens of the last step, in versions"),
    "clip_ratio": Gauge("assize_trainer_clip_ratio", "Share of the last step's tokens whose gradient was clipped"),
    "ratio": Gauge("assize_trainer_ratio", "Mean ratio of the policy to the version that sampled a token"),
    "entropy": Gauge("assize_trainer_entropy", "Mean entropy, in nats"),
    "kl": Gauge("assize_trainer_kl", "Mean divergence from version 0, in nats"),
    "gradient_norm": Gauge("assize_trainer_gradient_norm", "Norm of the last gradient before clipping"),
    "learning_rate": Gauge("assize_trainer_learning_rate", "Learning rate of the last optimizer step"),
    "mismatch": Gauge(
        "assize_trainer_mismatch",
        "Mean difference of the logprobs that workers reported from those recomputed, in nats",
    ),
    "reward": Gauge("assize_trainer_reward", "Mean reward of the rollouts at hand"),
    "length": Gauge("assize_trainer_length", "Mean tokens of a completion"),
    "truncated": Gauge("assize_trainer_truncated", "Share of completions as long as the token limit"),
    "groups": Gauge("assize_trainer_groups", "Groups trained on"),
    "groups_idle": Gauge("assize_trainer_groups_idle", "Groups without advantages"),
    "groups_left": Gauge("assize_trainer_groups_left", "Groups left for the next step"),
    "groups_stale": Gauge("assize_trainer_groups_stale", "Groups that came too late"),
}
ACCURACY = Gauge("assize_trainer_accuracy", "Accuracy on held-out problems at the last evaluation")
PASS_AT_K = Gauge(
    "assize_trainer_pass_at_k", "Share of held-out problems with a right completion at the last evaluation"
)
REWARD_OF = Gauge("assize_trainer_source_reward", "Mean reward of the rollouts at hand, by source of tasks", ["source"])
SKIPPED = Counter("assize_trainer_skipped", "Optimizer steps skipped because a gradient was not finite")
SECONDS = Counter("assize_trainer_seconds", "Seconds by part of a step", ["part"])
LAST_STEP = Gauge("assize_trainer_last_step_timestamp_seconds", "When a step last ended; before, when it started")
ALARMS = Gauge("assize_trainer_alarm", "1 while an alarm is raised", ["alarm"])
NAMES = ("not_finite", "entropy", "reward", "stale", "starved")


class MetricsLog:
    """Figures of one run, in the trainer's state folder. A restarted trainer goes on in the same file."""

    def __init__(self, path: Path, sink: Sink | None = None) -> None:
        self._path, self._sink = path, sink
        self._steps: list[StepFigures] = []
        self._raised: dict[str, str] = {}
        LAST_STEP.set_to_current_time()
        self._log = structlog.get_logger("trainer.metrics")

    def step(self, figures: dict[str, Any]) -> None:
        """Records a step by the names of ``GAUGES``.

        With ``skipped``, the rewards of ``sources`` by name, and the ``seconds`` of its parts.
        """
        self._write("step", figures)
        LAST_STEP.set_to_current_time()
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
