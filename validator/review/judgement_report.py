"""A judgement as a person reads it: the verdict, a line for each check, and the worst rollout token by token."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.wire.evidence import Measurements
from protocol.wire.reasons import SENTENCES, Reason
from protocol.wire.units import units
from validator.judging.checks import TAIL
from validator.judging.judge import Judgement
from validator.records.record import TESTS
from validator.review.inspection import CloseUp, Inspection

AROUND = 4
"""Tokens shown on either side of the worst one."""

CHECKS: dict[str, tuple[Reason, ...]] = {
    "provenance": (
        Reason.UNAVAILABLE,
        Reason.STALE_BEACON,
        Reason.WRONG_ROOT,
        Reason.WRONG_POLICY,
        Reason.DUPLICATE,
    ),
    "shape and proofs": (Reason.SHAPE,),
    "prompts": (Reason.WRONG_PROMPT,),
    "seeded sampling": (Reason.SAMPLING_FRAUD, Reason.SAMPLING_VOID),
    "endings": (Reason.ENDING,),
    "activations": (Reason.ACTIVATIONS,),
    "logprobs": (Reason.LOGPROBS,),
    "work units": (Reason.UNITS,),
    "record": (Reason.SEQUENCE,),
}
"""In the order they are made, with the reasons each may give."""


def summary(judgement: Judgement) -> dict[str, Any]:
    """Returns the verdict, its sentence and what the job comes to, in order of display."""
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
    }


def lines(inspection: Inspection) -> list[dict[str, Any]]:
    """Returns one row for each check: what was measured, the bound, and whether it passed (None: not looked at)."""
    found = {finding.reason for finding in inspection.judgement.evidence.findings}
    measured, bounds = _measured(inspection), _bounds(inspection)
    return [
        {
            "check": check,
            "measured": measured.get(check, "not looked at: what is wrong above forbids it"),
            "bound": bounds.get(check, "exact"),
            "passed": False if found & set(reasons) else None if check not in measured else True,
        }
        for check, reasons in CHECKS.items()
    ]


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


def worst(inspection: Inspection) -> dict[str, Any] | None:
    """Returns the rollout that looks worst and, under ``tokens``, those around its largest margin."""
    seen, measured = inspection.close_up, inspection.judgement.evidence.measurements
    if seen is None or measured is None:
        return None
    n = _worst_rollout(inspection.judgement, measured)
    rollout, part = seen.artifact.rollouts[n], seen.prefill.slice(n, n + 1)
    chunks = slice(int(measured.chunks_N[:n].sum()), int(measured.chunks_N[: n + 1].sum()))
    middle = int(np.lexsort((np.abs(rollout.logprobs - part.logprobs_S), part.margins_S))[-1])
    return {
        "rollout": n,
        "prompt": seen.policy.model.completion_text(rollout.prompt_tokens),
        "completion": seen.policy.model.completion_text(rollout.output_tokens),
        "ends by": rollout.finish_reason,
        "reward": float(measured.rewards_N[n]),
        "units": units(seen.policy.shape, len(rollout.prompt_tokens), len(rollout.output_tokens)),
        "largest margin (logits)": float(measured.margin_max_N[n]),
        "logprob differences, median and largest": [
            float(measured.logprob_median_N[n]),
            float(measured.logprob_max_N[n]),
        ],
        "distances of chunks": [float(rel) for rel in measured.rel_C[chunks]],
        "best forgeries of them": [float(null) for null in measured.null_C[chunks]],
        "tokens": _tokens(seen, n, middle),
    }


def columns(measurements: Measurements | None) -> dict[str, list[float | int]] | None:
    """Returns every number measured, by column."""
    if measurements is None:
        return None
    return {name: getattr(measurements, name).tolist() for name in Measurements.__slots__}


def _worst_rollout(judgement: Judgement, measured: Measurements) -> int:
    """That of the finding that decided; else the one with the largest margin, and of those the largest difference."""
    for finding in judgement.evidence.findings:
        if finding.reason is judgement.reason and finding.rollout is not None:
            return finding.rollout
    return int(np.lexsort((measured.logprob_max_N, measured.margin_max_N))[-1])


def _tokens(seen: CloseUp, n: int, middle: int) -> list[dict[str, Any]]:
    rollout, part = seen.artifact.rollouts[n], seen.prefill.slice(n, n + 1)
    decode = seen.policy.model.tokenizer.decode
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


def _measured(inspection: Inspection) -> dict[str, str]:
    """What each check saw; those that were not made are left out."""
    evidence, seen = inspection.judgement.evidence, inspection.close_up
    record = ", ".join(f"{test} {getattr(inspection.state, test):.2f}" for test in TESTS)
    missing = "" if inspection.whole else " (not every bundle of earlier rounds could be had)"
    shown = {"record": f"nats when the round opened: {record}{missing}"}
    for check, reasons in CHECKS.items():
        said = [finding.detail for finding in evidence.findings if finding.reason in reasons]
        if said and check != "record":
            shown[check] = said[0]
    if seen is None:
        return shown
    shown = {
        "provenance": "beacon, root, round, job, node and checkpoint are the job's",
        "shape and proofs": f"{len(seen.artifact.rollouts)} rollouts, {len(seen.prefill.margins_S)} tokens",
        "prompts": "those that follow from the beacon",
    } | shown
    return shown if evidence.measurements is None else shown | _numbers(inspection, evidence.measurements, seen)


def _numbers(inspection: Inspection, measured: Measurements, seen: CloseUp) -> dict[str, str]:
    evidence, finishes = inspection.judgement.evidence, [rollout.finish_reason for rollout in seen.artifact.rollouts]
    reported_S = np.concatenate([rollout.logprobs for rollout in seen.artifact.rollouts])
    median, tail = np.percentile(np.abs(reported_S.astype(np.float64) - seen.prefill.logprobs_S), [50.0, TAIL])
    shown = {
        "seeded sampling": f"largest margin {measured.margin_max_N.max():.3g}, "
        f"{measured.flips_N.sum()} of {measured.tokens_N.sum()} tokens off the seeded choice",
        "endings": f"{finishes.count('stop')} at end-of-text, {finishes.count('length')} at the most tokens",
        "logprobs": f"median difference {median:.3g}, {TAIL:g}th percentile {tail:.3g}",
        "work units": f"{evidence.units_claimed} claimed, {evidence.units_counted} counted",
    }
    if len(measured.rel_C):
        shown["activations"] = (
            f"largest distance {measured.rel_C.max():.3g}, mean {measured.rel_C.mean():.3g}, "
            f"at most {(measured.rel_C / np.maximum(measured.null_C, 1e-30)).max():.3g} of the best forgery's"
        )
    return shown


def _bounds(inspection: Inspection) -> dict[str, str]:
    rules, thresholds = inspection.rules, inspection.rules.thresholds
    fraud = "" if thresholds.sampling_fraud is None else f", fraud above {thresholds.sampling_fraud:g}"
    return {
        "shape and proofs": f"{rules.rollouts_per_job} rollouts of at most {rules.max_tokens} tokens",
        "seeded sampling": f"void above {thresholds.sampling_void:g}{fraud}",
        "activations": f"{thresholds.toploc:g}, {thresholds.toploc_mean:g}, {thresholds.toploc_null_ratio:g}",
        "logprobs": f"{thresholds.logprob_median:g}, {thresholds.logprob_tail:g}",
        "record": f"{rules.sequential.bound:.2f}",
    }
