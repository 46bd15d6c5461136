"""Settings of a trainer."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.errors import Misconfigured
from protocol.node.settings import NodeSettings, settings_config
from protocol.wire.canonical import validating
from protocol.wire.rules import Rules
from trainer.config import Recipe


class TrainerSettings(NodeSettings):
    """Settings named ``ASSIZE_TRAINER_…``, besides those of ``NodeSettings``.

    Args:
        run: the run to train.
        model: the Hugging Face model directory that the run was opened with.
        run_file: TOML file with the ``[recipe]``.
        coordinator_url: the coordinator, which serves the run's rules by hash; empty takes the one that the run names
            on chain.
        origin_host, origin_port: address to serve weights at, for relays to fetch.
        last_version: the checkpoint to end after; by default the recipe's number of steps.
        evaluate_every: versions between evaluations, besides the first and the last version.
        evaluation_problems: held-out problems of an evaluation; 0 for none.
        evaluation_samples: completions of each: accuracy is their mean reward (avg@k), pass_at_k the share of problems
            with a right one.
        target_accuracy: end at the first evaluation that reaches this accuracy.
        seed: seed of the held-out problems.
        threads: torch threads.
        device: device to train on.
        metrics_sink: "trackio" or "wandb", which also takes the figures of metrics.jsonl, under the project "assize";
            its own variables say where to, such as WANDB_MODE or TRACKIO_DIR.
        traps: trap file of the run's requester; no job that it names is trained on, whatever its verdict.
    """

    model_config = settings_config("ASSIZE_TRAINER_")

    run: int
    model: Path
    run_file: Path
    coordinator_url: str = ""
    origin_host: str = "127.0.0.1"
    origin_port: int = Field(default=8710, ge=0, le=65535)
    last_version: int | None = None
    evaluate_every: int = Field(default=0, ge=0)
    evaluation_problems: int = Field(default=512, ge=0)
    evaluation_samples: int = Field(default=1, ge=1)
    target_accuracy: float | None = None
    seed: int = 0
    threads: int = Field(default=1, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    metrics_sink: Literal["", "trackio", "wandb"] = ""
    traps: Path | None = None


def read_recipe(run_file: Path) -> Recipe:
    """Reads ``[recipe]`` of a run file: fields of a recipe, over those of ``preset`` if one is named.

    Raises:
        Misconfigured: it is missing, or has an unknown key or an invalid value.
    """
    try:
        table = tomllib.loads(run_file.read_text()).get("recipe")
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        raise Misconfigured(f"cannot read the run file {run_file}: {error}") from error
    if not isinstance(table, dict):
        raise Misconfigured(f"{run_file} has no [recipe]")
    preset = table.pop("preset", None)
    if preset not in (None, "builtin"):
        raise Misconfigured(f"{run_file}: recipe.preset: unknown preset {preset!r}: expected 'builtin'")
    _refuse_rules(run_file, table)
    with validating(str(run_file), Misconfigured, "recipe"):
        return Recipe.builtin(**table) if preset else Recipe.model_validate(table)


def _refuse_rules(run_file: Path, table: Mapping[str, object]) -> None:
    """Refuses a recipe that repeats a field of the run's rules, which workers and validators follow instead."""
    for name in table:
        if name in Rules.model_fields:
            raise Misconfigured(f"{run_file}: recipe.{name}: set by the run's rules, remove it from [recipe]")
