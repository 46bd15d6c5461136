"""Run files as ``assize run open --file`` takes them: the requester's terms, and what a run is opened with.

    rules = "rules.json"     canonical rules beside the run file
    [terms]                  numbers of ``IMarket.RunTerms``, amounts in wei
    [requester]              model and its root, coordinator and trainer, URI, escrow

A trainer reads its recipe from the same file. ``assize run new`` writes one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from protocol.errors import Misconfigured
from protocol.wire.canonical import validating

if TYPE_CHECKING:
    from protocol.chain.structs import RunTerms


class RunFileTerms(BaseModel):
    """The requester's terms: the fields of ``IMarket.RunTerms`` other than parties. Amounts in wei."""

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
        """Returns the terms as the contract takes them."""
        from protocol.chain.structs import RunTerms

        numbers = self.model_dump(exclude={"jobs_per_round"})
        return RunTerms(coordinator=coordinator, trainer=trainer, rules_hash=rules_hash, **numbers)


class RequesterEntry(BaseModel):
    """The rest that a run is opened with: its first model, its parties, its URI, and escrow as people type amounts."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="requester")

    model_root: str
    coordinator: str
    trainer: str
    uri: str
    model: Path | None = None
    escrow: str | None = None


class RunOpening(BaseModel):
    """A run file as far as it opens a run; ``rules`` is the file of canonical rules."""

    model_config = ConfigDict(frozen=True)

    rules: Path
    terms: RunFileTerms
    requester: RequesterEntry


DEFAULTS: dict[str, Any] = {"jobs_per_round": 1, "committee": 3} | dict.fromkeys(
    ("work_seconds", "draw_seconds", "commit_seconds", "reveal_seconds"), 60
)
"""Terms of a run that is opened without a run file and without these options."""


def opening_of(
    file: Path | None, rules: Path | None, requester: Mapping[str, object], terms: Mapping[str, object]
) -> RunOpening:
    """Returns what a run is opened with: a run file's values, overridden by those that are not None.

    Raises:
        Misconfigured: the file cannot be read, or a value is missing or invalid.
    """
    tables = _tables(file) if file is not None else {"terms": DEFAULTS}
    found: dict[str, Any] = {
        "rules": rules or tables.get("rules"),
        **{
            name: tables.get(name, {}) | {key: value for key, value in given.items() if value is not None}
            for name, given in (("terms", terms), ("requester", requester))
        },
    }
    missing = [
        f"--{name.replace('_', '-')}"
        for name in ("model_root", "coordinator", "trainer", "uri")
        if name not in found["requester"]
    ]
    missing += [
        f"--{name.replace('_', '-')}"
        for name in ("price_per_unit", "juror_fee", "max_units")
        if name not in found["terms"]
    ]
    if missing or found["rules"] is None:
        absent = ", ".join(missing if found["rules"] is not None else ["--rules", *missing])
        raise Misconfigured(f"missing {absent}: give them, or a run file that has them with --file (assize run new)")
    with validating(str(file or "the run's terms"), Misconfigured):
        return RunOpening.model_validate(found)


def _tables(path: Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        raise Misconfigured(f"cannot read the run file {path}: {error}") from error
    if not isinstance(tables.get("rules"), str):
        raise Misconfigured(f"{path}: rules: expected the name of a file of canonical rules (see: assize run rules)")
    for name in ("terms", "requester"):
        if not isinstance(tables.get(name, {}), dict):
            raise Misconfigured(f"{path}: {name}: expected a table [{name}]")
    return tables | {"rules": path.parent / tables["rules"]}
