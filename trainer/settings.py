"""What a trainer is told at start."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from protocol.errors import Misconfigured
from protocol.node.settings import NodeSettings, settings_config
from protocol.wire.rules import Rules
from trainer.config import Recipe


class TrainerSettings(NodeSettings):
    """``ASSIZE_TRAINER_…``; the shared ones are those of ``NodeSettings``.

    Args:
        run: the run this trainer's key publishes for.
        model: the Hugging Face directory the run was opened with.
        run_file: TOML file whose ``[recipe]`` says how to train.
        coordinator_url: where the run's rules are served by hash.
        origin_host, origin_port: where weights are served from; relays take them from there.
        last_version: the checkpoint after which to end; the recipe's steps where not given.
        evaluate_every: measure held-out accuracy each so many versions, besides the first and the last.
        target_accuracy: end as soon as a measurement reaches this.
        seed: of the held-out problems.
        threads: torch threads.
    """

    model_config = settings_config("ASSIZE_TRAINER_")

    run: int
    model: Path
    run_file: Path
    coordinator_url: str
    origin_host: str = "127.0.0.1"
    origin_port: int = Field(default=8710, ge=0, le=65535)
    last_version: int | None = None
    evaluate_every: int = Field(default=0, ge=0)
    target_accuracy: float | None = None
    seed: int = 0
    threads: int = Field(default=1, ge=1)


def read_recipe(run_file: Path) -> Recipe:
    """Reads ``[recipe]`` of a run file: numbers of a recipe, on top of those of ``preset`` where one is named.

    ``Misconfigured`` where it is missing, or something in it is not known or not allowed.
    """
    try:
        table = tomllib.loads(run_file.read_text()).get("recipe")
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no text at all
        raise Misconfigured(f"cannot read the run file {run_file}: {error}") from error
    if not isinstance(table, dict):
        raise Misconfigured(f"{run_file} has no [recipe]")
    preset = table.pop("preset", None)
    if preset not in (None, "builtin"):
        raise Misconfigured(f"{run_file}: recipe.preset: there is no preset {preset!r}, only 'builtin'")
    _refuse_rules(run_file, table)
    try:
        return Recipe.builtin(**table) if preset else Recipe.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        raise Misconfigured(f"{run_file}: recipe.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _refuse_rules(run_file: Path, table: Mapping[str, object]) -> None:
    """Refuses a recipe that sets what the run's rules set: workers and validators would not follow it."""
    for name in table:
        if name in Rules.model_fields:
            raise Misconfigured(f"{run_file}: recipe.{name}: set by the run's rules, remove it from [recipe]")
