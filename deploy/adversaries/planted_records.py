"""A validator that votes rightly, and states evidence against every node in its bundles.

Whoever believed its statements would find an honest node fraudulent by its record, or a cheat's record empty.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from validator.daemon import Validator
from validator.judging.judge import Judgement
from validator.queue.judged_round import JudgedRound


class PlantsRecord(Validator):
    """States a likelihood ratio of its choosing for every rollout, and votes on each job without any record."""

    planted = 1e6

    def findings(self, round_: JudgedRound) -> list[Judgement]:
        """Returns the judgements to vote by and to state."""
        return [self._plant(judgement) for judgement in round_.judgements]

    def _plant(self, judgement: Judgement) -> Judgement:
        measured = judgement.evidence.measurements
        if measured is None:
            return judgement
        lie = replace(measured, llr_N=np.full_like(measured.llr_N, self.planted))
        return replace(judgement, evidence=replace(judgement.evidence, measurements=lie))


class ClearsRecord(PlantsRecord):
    """States evidence in favour of every node."""

    planted = -1e6
