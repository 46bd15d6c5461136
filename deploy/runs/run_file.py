"""Run files: a run's rules, the requester's terms and the trainer's recipe, as TOML.

``rules`` is a table, or the name of a file of calibrated rules beside the run file (``assize validator calibrate``).
``[goal]`` says what a demonstration of the run must reach; nothing on chain or in the trainer depends on it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.run_file import RunFileTerms
from protocol.wire.rules import Rules, decode_rules
from trainer.config import Recipe
from trainer.settings import read_recipe

BUILTIN = Path(__file__).with_name("builtin.toml")


class Goal(BaseModel):
    """Accuracy at the end on so many held-out ``problems``, and least ``gain`` over the first model's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float = Field(default=0.80, ge=0, le=1)
    gain: float = Field(default=0.30, ge=0, le=1)
    problems: int = Field(default=512, ge=1)


@dataclass(frozen=True, slots=True)
class RunFile:
    """The content of a run file."""

    path: Path
    rules: Rules
    terms: RunFileTerms
    recipe: Recipe
    goal: Goal = field(default_factory=Goal)


def read_run_file(path: Path = BUILTIN) -> RunFile:
    """Reads a run file; raises `Misconfigured` with the field that is invalid."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        raise Misconfigured(f"cannot read the run file {path}: {error}") from error
    try:
        rules = _rules(path, tables.get("rules", {}))
        terms = RunFileTerms.model_validate(tables.get("terms", {}))
        return RunFile(path, rules, terms, read_recipe(path), Goal.model_validate(tables.get("goal", {})))
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{error.title.lower()}.{'.'.join(map(str, first['loc']))}"
        raise Misconfigured(f"{path}: {where}: {first['msg']}") from error


def _rules(path: Path, given: object) -> Rules:
    """Returns the rules in the run file, or in the calibrated file that it names."""
    if not isinstance(given, str):
        return Rules.model_validate(given)
    try:
        return decode_rules((path.parent / given).read_bytes())
    except (OSError, Rejected) as error:
        raise Misconfigured(f"{path}: rules: cannot read {path.parent / given}: {error}") from error
