"""A validator that judges honestly, and all the same finds every job of the first round it sits in fraudulent.

Its evidence says so as well: what gives it away is that nobody who measures again finds what it found.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.daemon import Validator
from validator.judging.judge import Judgement
from validator.queue.judged_round import JudgedRound

INVENTED = Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 1.0, 0.0)


class CondemningValidator(Validator):
    """See above."""

    condemned: int | None = None

    @override
    def findings(self, round_: JudgedRound) -> list[Judgement]:
        found = super().findings(round_)
        if self.condemned is None:
            self.condemned = round_.followed.number
        return [condemn(each) for each in found] if round_.followed.number == self.condemned else found


def condemn(judgement: Judgement) -> Judgement:
    """The judgement with a fraud that nobody committed. PURE."""
    evidence = replace(judgement.evidence, reason=Reason.SAMPLING_FRAUD, findings=(INVENTED,))
    return replace(judgement, evidence=evidence)
