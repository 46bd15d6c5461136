"""A validator that reports every job of the first round it judges as fraudulent.

Its evidence agrees with its vote: only measuring again shows that the finding is invented.
"""

from __future__ import annotations

from dataclasses import replace

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.daemon import Validator
from validator.judging.judge import Judgement
from validator.queue.judged_round import JudgedRound

INVENTED = Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 1.0, 0.0)


class CondemningValidator(Validator):
    """Invents a fraud in every job of one round, and judges honestly afterwards."""

    condemned: int | None = None

    def findings(self, round_: JudgedRound) -> list[Judgement]:
        """Returns the judgements to vote by."""
        found = super().findings(round_)
        if self.condemned is None:
            self.condemned = round_.followed.number
        return [condemn(each) for each in found] if round_.followed.number == self.condemned else found


def condemn(judgement: Judgement) -> Judgement:
    """Returns the judgement with an invented fraud. PURE."""
    evidence = replace(judgement.evidence, reason=Reason.SAMPLING_FRAUD, findings=(INVENTED,))
    return replace(judgement, evidence=evidence)
