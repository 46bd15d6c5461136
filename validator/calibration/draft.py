"""Draft rules for calibration: everything but thresholds and pins, from a run file or the built-in run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured, Rejected
from protocol.wire.canonical import validating
from protocol.wire.rules import Rules, Thresholds, decode_rules
from validator.judging.registry import CHECKS

BUILTIN: dict[str, Any] = {
    "model": {"dtype": "float32", "head_dtype": "float32"},
    "environment": {"name": "arithmetic", "params": {"digits": 3}},
    "groups_per_job": 4,
    "samples_per_group": 8,
    "temperature": 1.0,
    "max_tokens": 64,
    "async_level": 2,
}
"""Rules of the built-in run, used without a run file."""

UNKNOWN = Thresholds(
    sampling_void=1.0, logprob_median=1.0, logprob_tail=1.0, toploc=1.0, toploc_mean=1.0, toploc_null_ratio=0.99
)
"""Placeholders until the bounds are measured; no job is judged by them."""


def draft(run_file: Path | None, dtype: str | None, max_tokens: int | None, engines: tuple[str, ...]) -> Rules:
    """Returns rules with placeholder thresholds; raises ``Misconfigured`` for an invalid field, by name."""
    table = dict(BUILTIN) if run_file is None else _table(run_file)
    table |= {} if max_tokens is None else {"max_tokens": max_tokens}
    model = {key: value for key, value in table.get("model", {}).items() if key != "checkpoint"}
    model |= {} if dtype is None else {"dtype": dtype, "head_dtype": dtype}
    table |= {"model": model | {"worker_engines": engines}, "thresholds": _placeholders().model_dump()}
    table |= {"sequential": table.get("sequential", {}) | {"sigma": 1.0}}
    with validating(str(run_file or "the options"), Misconfigured, "rules"):
        return Rules.model_validate(table)


def _placeholders() -> Thresholds:
    """Returns ``UNKNOWN`` with a placeholder for every other bound of the registered checks."""
    names = {bound.name for check in CHECKS for bound in check.bounds}
    return Thresholds.from_bounds(dict.fromkeys(names, 1.0) | UNKNOWN.bounds)


def _table(run_file: Path) -> dict[str, Any]:
    """The [rules] table of a run file, or of the rules file that it names."""
    try:
        rules = tomllib.loads(run_file.read_text()).get("rules")
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read the run file {run_file}: {error}") from error
    if isinstance(rules, dict):
        return rules
    if not isinstance(rules, str):
        raise Misconfigured(f"invalid run file {run_file}: expected a [rules] table or the path of a rules file")
    try:
        return decode_rules((run_file.parent / rules).read_bytes()).model_dump(mode="json")
    except (OSError, Rejected) as error:
        raise Misconfigured(f"cannot read the rules {run_file.parent / rules}: {error}") from error
