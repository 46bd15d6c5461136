"""Workers that do not serve what they signed: what each gains, and in how many rounds it goes unpaid.

What they do shows in no artifact: rounds are played call by call, as in ``tests.bench.economics``, which has more of
them at greater length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.economics.estimates import Estimate, estimate
from tests.bench.economics.histories import Played, play_all

WITHHOLDERS = {
    "junk then truth": "junk first, the true bytes on appeal; its run's stores give receipts for neither",
    "junk then truth, with the stores": "the same, its run's stores being its own",
    "withhold": "no bytes first, the true ones on appeal; no receipts",
    "withhold, with the stores": "the same, its run's stores being its own",
    "hide from the trial": "a fraud that it appeals; it would hide the file, but the run's stores have it",
    "hide from the trial, with the stores": "a fraud that it appeals, its own stores hiding the file from the trial",
}
"""Strategy to the row's sentence."""


@dataclass(frozen=True, slots=True)
class WithholderRow:
    """Rounds of one strategy below a hostile majority.

    gained   growth of its wealth beyond pay for good work, fees and awards, in wei a round
    refused  rounds in which work of its was not accepted
    """

    name: str
    rounds: int
    gained: Estimate
    refused: int

    @property
    def rounds_to_99(self) -> int | None:
        """Rounds until 99 of 100 were refused at least once; None: never."""
        if not self.refused:
            return None
        missed = 1 - self.refused / self.rounds
        return 1 if missed <= 0.01 else math.ceil(math.log(0.01) / math.log(missed))


def withholder_rows(rounds: int, processes: int) -> list[WithholderRow]:
    """Plays so many rounds of each strategy; returns its rows."""
    played: dict[str, list[Played]] = {name: [] for name in WITHHOLDERS}
    for name, history in play_all(WITHHOLDERS, rounds, processes):
        played[name] += history
    return [_row(name, [each for each in found if not each.captured]) for name, found in played.items()]


def _row(name: str, rounds: Sequence[Played]) -> WithholderRow:
    gained = estimate(rounds, lambda each: each.unearned)
    return WithholderRow(name, len(rounds), gained, sum(each.refused > 0 for each in rounds))
