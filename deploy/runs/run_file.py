"""A run file: the rules all agree on, the terms the requester offers, the recipe the trainer follows.

``rules`` is a table, or names a file of calibrated rules beside the run file (``assize validator calibrate``).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.chain.structs import RunTerms
from protocol.errors import Misconfigured, Rejected
from protocol.wire.rules import Rules, decode_rules
from trainer.config import Recipe
from trainer.settings import read_recipe

BUILTIN = Path(__file__).with_name("builtin.toml")


class RunFileTerms(BaseModel):
    """What the requester offers; the fields of ``IMarket.RunTerms`` that do not name somebody. Amounts in wei."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="terms")

    jobs_per_round: int = Field(ge=1, le=256)
    price_per_unit: int = Field(ge=0)
    juror_fee: int = Field(ge=0)
    max_units: int = Field(ge=1)
    committee: int = Field(ge=1, le=15)
    appeal_seats: int = Field(default=0, ge=0, le=15)
    work_seconds: int = Field(ge=1)
    draw_seconds: int = Field(ge=1)
    commit_seconds: int = Field(ge=1)
    reveal_seconds: int = Field(ge=1)
    challenge_seconds: int = Field(default=0, ge=0)

    def on_chain(self, coordinator: str, trainer: str, rules_hash: bytes) -> RunTerms:
        """The terms as the contract takes them."""
        return RunTerms(
            coordinator=coordinator,
            trainer=trainer,
            rules_hash=rules_hash,
            price_per_unit=self.price_per_unit,
            juror_fee=self.juror_fee,
            max_units=self.max_units,
            committee=self.committee,
            appeal_seats=self.appeal_seats,
            work_seconds=self.work_seconds,
            draw_seconds=self.draw_seconds,
            commit_seconds=self.commit_seconds,
            reveal_seconds=self.reveal_seconds,
            challenge_seconds=self.challenge_seconds,
        )


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run file, read."""

    path: Path
    rules: Rules
    terms: RunFileTerms
    recipe: Recipe


def read_run_file(path: Path = BUILTIN) -> RunFile:
    """Reads a run file. ``Misconfigured`` names what is wrong."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no text at all
        raise Misconfigured(f"cannot read the run file {path}: {error}") from error
    try:
        rules = _rules(path, tables.get("rules", {}))
        terms = RunFileTerms.model_validate(tables.get("terms", {}))
        return RunFile(path, rules, terms, read_recipe(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{error.title.lower()}.{'.'.join(map(str, first['loc']))}"
        raise Misconfigured(f"{path}: {where}: {first['msg']}") from error


def _rules(path: Path, given: object) -> Rules:
    """The rules in the run file, or in the calibrated file beside it that it names."""
    if not isinstance(given, str):
        return Rules.model_validate(given)
    try:
        return decode_rules((path.parent / given).read_bytes())
    except (OSError, Rejected) as error:
        raise Misconfigured(f"{path}: rules: cannot read {path.parent / given}: {error}") from error
