"""A judgement as a person reads it."""

from __future__ import annotations

from typing import Any

from protocol.wire.reasons import SENTENCES
from validator.judge import Judgement


def summary(judgement: Judgement) -> dict[str, Any]:
    """Returns the verdict, its sentence and the largest of what was measured, in order of display."""
    evidence = judgement.evidence
    shown: dict[str, Any] = {
        "verdict": evidence.reason.name.lower(),
        "reason": SENTENCES[evidence.reason],
        "node": evidence.node,
        "units claimed": evidence.units_claimed,
        "units counted": evidence.units_counted,
    }
    measured = evidence.measurements
    if measured is None:
        return shown
    return shown | {
        "rollouts": len(measured.tokens_N),
        "tokens": int(measured.tokens_N.sum()),
        "mean reward": float(measured.rewards_N.mean()),
        "tokens off the seeded choice": int(measured.flips_N.sum()),
        "largest margin (logits)": float(measured.margin_max_N.max()),
        "largest logprob difference": float(measured.logprob_max_N.max()),
        "largest distance": float(measured.rel_C.max()) if len(measured.rel_C) else None,
        "nearest forgery": float(measured.null_C.min()) if len(measured.null_C) else None,
    }


def rows(judgement: Judgement) -> list[dict[str, Any]]:
    """Returns one row for each finding."""
    return [
        {
            "reason": finding.reason.name.lower(),
            "rollout": finding.rollout,
            "what": finding.detail,
            "observed": finding.observed,
            "limit": finding.limit,
        }
        for finding in judgement.evidence.findings
    ]
