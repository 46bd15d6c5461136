"""Terminal and JSON output of inspections and replays."""

from __future__ import annotations

from typing import Any

from protocol.node.console import show
from validator.review.inspection import Inspection
from validator.review.judgement_report import columns, lines, rows, summary, worst
from validator.review.replay import Replay, sentences

PASSED = {True: "passed", False: "FAILED", None: "-"}


def show_inspection(inspection: Inspection, as_json: bool) -> None:
    """Shows verdict, checks, findings, and the worst rollout with the tokens around its largest margin."""
    judgement, rollout = inspection.judgement, worst(inspection)
    shown = summary(judgement)
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
    if as_json:
        told = {"confirmed": replayed.confirmed, "sentences": list(sentences(replayed))}
        show({**told, "jobs": jobs, "differences": differences}, True)
        return
    if jobs:
        show(jobs, False, "verdicts")
        show([_plain(row) for row in differences], False, "measurements")
    for sentence in sentences(replayed):
        print(sentence)


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
