"""Terminal and JSON output of inspections and replays."""

from __future__ import annotations

from collections import Counter
from typing import Any

from protocol.node.console import show
from protocol.wire.fingerprints import Likeness
from validator.review.inspection import Inspection
from validator.review.judgement_report import classes, columns, lines, rows, summary, worst
from validator.review.replay import Replay, Resemblance, sentences

PASSED = {True: "passed", False: "FAILED", None: "-"}


def show_inspection(inspection: Inspection, as_json: bool) -> None:
    """Shows verdict, checks, findings, and the worst rollout with the tokens around its largest margin."""
    judgement, rollout = inspection.judgement, worst(inspection)
    numerics = inspection.policy.numerics
    shown = summary(judgement) | {"engine": numerics.engine, "canary": f"0x{numerics.canary.hex()}"}
    shown |= classes(inspection)
    if as_json:
        whole: dict[str, Any] = {**shown, "checks": lines(inspection), "findings": rows(judgement), "worst": rollout}
        show({**whole, "measurements": columns(judgement.evidence.measurements)}, True)
        return
    shown_lines = [each | {"passed": PASSED[each["passed"]]} for each in lines(inspection)]
    show([{name: text for name, text in each.items() if name != "requires"} for each in shown_lines], False, "checks")
    if judgement.evidence.findings:
        show([_plain(row) for row in rows(judgement)], False, "findings")
    if rollout is not None:
        tokens = rollout.pop("tokens")
        show(_plain(rollout), False, "worst rollout")
        show([_plain(token) for token in tokens], False, "tokens around its largest margin")
    show(_plain(shown), False, f"job {judgement.claim.job} of round {judgement.claim.round}")


def show_replay(replayed: Replay, as_json: bool) -> None:
    """Shows verdicts, differences by column, and the conclusions as sentences."""
    jobs = [{"job": job, "bundle": said, "here": found} for job, said, found in replayed.reasons]
    differences = [
        {"column": one.column, "largest difference": one.largest, "tolerance": one.tolerance, "within": one.tolerable}
        for one in replayed.differences
    ]
    fingerprints = [_fingerprint(one) for one in replayed.fingerprints]
    if as_json:
        told = {"confirmed": replayed.confirmed, "sentences": list(sentences(replayed))}
        show({**told, "jobs": jobs, "differences": differences, "fingerprints": fingerprints}, True)
        return
    if jobs:
        show(jobs, False, "verdicts")
        show([_plain(row) for row in differences], False, "measurements")
    if fingerprints:
        show([_plain(row) for row in fingerprints], False, "fingerprints of the prefill")
    for sentence in sentences(replayed):
        print(sentence)


def _fingerprint(one: Resemblance) -> dict[str, Any]:
    """Counts a job's rollouts by likeness, and gives the one furthest apart."""
    counts = Counter(rollout.likeness for rollout in one.rollouts)
    return {
        "job": one.job,
        **{likeness.value: counts[likeness] for likeness in Likeness},
        "largest distance": one.furthest,
        "bound": one.bound,
        "largest gap": one.widest,
        "gap bound": one.gap_bound,
        "engine": one.engine,
        "same engine": "yes" if one.same else "no",
    }


def _plain(values: dict[str, Any]) -> dict[str, str]:
    """Formats numbers to four digits, and shows line ends as such."""
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "-"
    return str(value).replace("\n", "\\n")
