"""Report of a judgement for people: the verdict, a line per check, and the worst rollout token by token."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.wire.evidence import Measurements
from protocol.wire.rollout import Rollout
from protocol.wire.units import units
from validator.judging.check import Check
from validator.judging.judge import Judgement, PolicyVersion
from validator.judging.prefill import Prefill
from validator.judging.registry import CHECKS, RECORD, REWARDS
from validator.records.record import TESTS
from validator.review.inspection import Inspection

AROUND = 4
"""Tokens shown on either side of the worst one."""


def summary(judgement: Judgement) -> dict[str, Any]:
    """Returns the verdict, its sentence and the job's totals, in order of display."""
    evidence = judgement.evidence
    shown: dict[str, Any] = {
        "verdict": evidence.reason.name.lower(),
        "reason": evidence.reason.sentence,
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
        "tokens off the seeded choice": int(measured.flips_N.sum()),
    }


def classes(inspection: Inspection) -> dict[str, str]:
    """Returns the determinism class that the artifact claims, and the run's; nothing in a run without one."""
    read, rules = inspection.examination.read, inspection.rules
    if read is None or rules.model.exact is None:
        return {}
    claimed, asked = read.artifact.canary, rules.canary
    return {"class claimed": f"0x{claimed.hex()}", "class of the run": f"0x{asked.hex()}"}


def lines(inspection: Inspection) -> list[dict[str, Any]]:
    """Returns one row per check: what was measured, the bound, and whether it passed (None: not examined).

    Rewards are left out: only jurors have samples to compare them with.
    """
    rules, findings, stopped = inspection.rules, inspection.judgement.evidence.findings, False
    shown = []
    for check in CHECKS:
        if not check.applies(rules.thresholds) or check is REWARDS:
            continue
        details = [finding.detail for finding in findings if finding.reason in check.reasons]
        measured = _record(inspection) if check is RECORD else None if stopped else _described(check, inspection)
        said = [*details[:1], *([] if measured is None else [measured])]
        shown.append(
            {
                "check": check.name,
                "measured": "; ".join(said) or "not examined: an earlier check failed",
                "bound": check.bounded(rules),
                "passed": False if details else None if measured is None else True,
                "requires": check.sentence,
            }
        )
        stopped |= bool(details) and inspection.examination.measured is None and check is not RECORD
    return shown


def rows(judgement: Judgement) -> list[dict[str, Any]]:
    """Returns one row per finding."""
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


def worst(inspection: Inspection) -> dict[str, Any] | None:
    """Returns the worst rollout and, under ``tokens``, the tokens around its largest margin."""
    seen, measured = inspection.examination, inspection.judgement.evidence.measurements
    if seen.read is None or seen.prefill is None or measured is None:
        return None
    n = _worst_rollout(inspection.judgement, measured)
    rollout, part = seen.read.artifact.rollouts[n], seen.prefill.slice(n, n + 1)
    policy = inspection.policy
    chunks = slice(int(measured.chunks_N[:n].sum()), int(measured.chunks_N[: n + 1].sum()))
    middle = int(np.lexsort((np.abs(rollout.logprobs - part.logprobs_S), part.margins_S))[-1])
    return {
        "rollout": n,
        "prompt": policy.model.prompt_text(tuple(rollout.prompt_tokens.tolist())),
        "completion": policy.model.completion_text(rollout.output_tokens, policy.model.stop_tokens(inspection.rules)),
        "ends by": rollout.finish_reason,
        "units": units(policy.shape, len(rollout.prompt_tokens), len(rollout.output_tokens)),
        "largest margin (logits)": float(measured.margin_max_N[n]),
        "logprob differences, median and largest": [
            float(measured.logprob_median_N[n]),
            float(measured.logprob_max_N[n]),
        ],
        "distances of chunks": [float(rel) for rel in measured.rel_C[chunks]],
        "best forgeries of them": [float(null) for null in measured.null_C[chunks]],
        "tokens": _tokens(policy, rollout, part, middle),
    }


def columns(measurements: Measurements | None) -> dict[str, list[float | int]] | None:
    """Returns all measurements by column."""
    if measurements is None:
        return None
    return {name: getattr(measurements, name).tolist() for name in Measurements.__slots__}


def _worst_rollout(judgement: Judgement, measured: Measurements) -> int:
    """Rollout of the deciding finding, or the one with the largest margin, then the largest logprob difference."""
    for finding in judgement.evidence.findings:
        if finding.reason is judgement.reason and finding.rollout is not None:
            return finding.rollout
    return int(np.lexsort((measured.logprob_max_N, measured.margin_max_N))[-1])


def _tokens(policy: PolicyVersion, rollout: Rollout, part: Prefill, middle: int) -> list[dict[str, Any]]:
    decode = policy.model.tokenizer.decode
    first, last = max(0, middle - AROUND), min(len(rollout.output_tokens), middle + AROUND + 1)
    return [
        {
            "position": position,
            "token": decode([int(rollout.output_tokens[position])]),
            "seeded choice": decode([int(part.chosen_S[position])]),
            "margin": float(part.margins_S[position]),
            "gap": float(part.gaps_S[position]),
            "reported logprob": float(rollout.logprobs[position]),
            "recomputed": float(part.logprobs_S[position]),
        }
        for position in range(first, last)
    ]


def _described(check: Check, inspection: Inspection) -> str | None:
    seen = inspection.examination
    return None if seen.read is None else check.described(seen.read, seen.measured)


def _record(inspection: Inspection) -> str:
    record = ", ".join(f"{test} {getattr(inspection.state, test):.2f}" for test in TESTS)
    missing = "" if inspection.whole else " (some bundles of earlier rounds could not be fetched)"
    return f"nats when the round opened, as stated: {record}{missing}"
