"""The alert rules with shorter times, so that a fault need not last for an hour."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from deploy.watching.metrics import ROOT

RULES = ROOT / "deploy" / "watching" / "alerts.yaml"
TIMES_SHORTER = 30
LEAST_FOR_SECONDS, LEAST_RANGE_SECONDS = 2, 10
"""Shortest ``for`` and range that Prometheus sees several scrapes in."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"\[(\d+)([smhd])\]")
_AGE = re.compile(r"(time\(\) - \w+(?:\{[^}]*\})? > )(\d+)")


def shortened(path: Path = RULES, factor: int = TIMES_SHORTER) -> dict[str, Any]:
    """Returns the rules with every ``for``, every range and every age in them ``factor`` times as short."""
    rules: dict[str, Any] = yaml.safe_load(path.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{max(_seconds(rule['for']) // factor, LEAST_FOR_SECONDS)}s"
            rule["expr"] = _AGE.sub(lambda age: f"{age[1]}{int(age[2]) // factor}", rule["expr"])
            rule["expr"] = _RANGE.sub(
                lambda found: f"[{max(int(found[1]) * _SECONDS[found[2]] // factor, LEAST_RANGE_SECONDS)}s]",
                rule["expr"],
            )
    return rules


def alerts_of(rules: dict[str, Any]) -> list[str]:
    """Returns the names of the alerts."""
    return list(dict.fromkeys(rule["alert"] for group in rules["groups"] for rule in group["rules"]))


def _seconds(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]]
