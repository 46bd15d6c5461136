"""Outcome of a worker's rounds as the chain has them, and what it earned today.

The day's sum is kept in a file, so that a restart goes on with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from protocol.chain.structs import Round, RunTerms, State, Verdict, verdict_in
from protocol.files import write_atomically


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """A node's jobs in a round that has ended: how many by verdict and how many were not handed in, and wei earned."""

    accepted: int
    fraud: int
    void: int
    unavailable: int
    missing: int
    earned: int

    def counts(self) -> dict[str, int]:
        """Returns the numbers of jobs that are not 0, by name."""
        named = {name: getattr(self, name) for name in ("accepted", "fraud", "void", "unavailable", "missing")}
        return {name: number for name, number in named.items() if number}


def outcome_of(round_: Round, jobs: int, units: Mapping[int, int], terms: RunTerms) -> RoundOutcome:
    """Returns the outcome of a node's jobs in an ended round. PURE.

    Args:
        round_: the round as stored; a void one pays nothing.
        jobs: the node's jobs in it.
        units: units of the jobs that it handed in, by job.
        terms: terms of the run at the rules that the node has joined; other terms need other rules.
    """
    handed_in = {job: wanted for job, wanted in units.items() if round_.submitted >> job & 1}
    if round_.state is State.VOID:
        return RoundOutcome(0, 0, len(handed_in), 0, jobs - len(handed_in), 0)
    verdicts = {job: verdict_in(round_.accepted, round_.fraud, job) for job in handed_in}
    found = Counter(verdicts.values())
    paid = sum(min(handed_in[job], terms.max_units) for job, verdict in verdicts.items() if verdict is Verdict.ACCEPTED)
    return RoundOutcome(
        accepted=found[Verdict.ACCEPTED],
        fraud=found[Verdict.FRAUD],
        void=found[Verdict.VOID],
        unavailable=found[Verdict.UNAVAILABLE],
        missing=jobs - len(handed_in),
        earned=paid * terms.price_per_unit,
    )


class Earnings:
    """Wei earned today, in UTC, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, wei: int) -> int:
        """Adds what was earned; returns the day's sum. A file that cannot be read or written starts at 0."""
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        today = self._kept(day) + wei
        with suppress(OSError):  # the sum is for people, and work goes on
            write_atomically(self._file, json.dumps({"day": day, "wei": str(today)}).encode())
        return today

    def _kept(self, day: str) -> int:
        try:
            kept = json.loads(self._file.read_text())
            return int(kept["wei"]) if kept["day"] == day else 0
        except (OSError, ValueError, TypeError, KeyError):
            return 0
