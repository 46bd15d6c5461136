"""Output of ``assize validator compare-class``: a table of cases for people, and one line of JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from protocol.errors import Misconfigured, Rejected, accessing
from protocol.node.console import show
from protocol.node.progress import CountBars
from protocol.tensor.determinism import made_by
from protocol.tensor.directory import check_model_directory
from protocol.wire.rules import Rules, decode_rules
from validator.calibration.exactness import ExactCase, ExactCount, canaries, compare


def compare_and_report(rules_file: Path, model: Path, tokens: int, threads: int) -> bool:
    """Compares, prints, and returns whether every bit was equal.

    Raises:
        Misconfigured: the file holds no rules of a run that compares bits, or there is no model.
    """
    rules = _read(rules_file)
    check_model_directory(model)
    with CountBars() as bars:
        counts = compare(rules, model, tokens, threads, lambda done, of: bars.reached("comparing", done, of, "tokens"))
    show(_rows(counts), False, f"{model.name}: bits that differ between two passes over the same windows")
    named, figures = made_by("cpu"), _figures(counts)
    found = canaries(rules, model, sorted({1, threads}))
    print(json.dumps({"model": model.name, "made_by": named, "canaries": found, **figures}), flush=True)
    return not figures["differing_tokens"] and not figures["differing_chunks"]


def _read(path: Path) -> Rules:
    try:
        with accessing(f"read the rules {path}"):
            rules = decode_rules(path.read_bytes())
    except Rejected as error:
        raise Misconfigured(f"{path} holds no canonical rules: {error}") from error
    if rules.model.exact is None:
        raise Misconfigured(f"invalid rules {path}: expected those of a run that compares bits, with `exact` set")
    return rules


def _rows(counts: Sequence[ExactCount]) -> list[dict[str, str]]:
    """Returns a row for the cases of each job size, batch and length."""
    grouped = defaultdict[tuple[int, int, str], list[ExactCount]](list)
    for count in counts:
        grouped[count.case.rollouts, count.case.rows, _length(count.case)].append(count)
    return [
        {
            "rollouts of a job": str(rollouts),
            "rows at once": str(rows),
            "length": length,
            "tokens": f"{sum(count.tokens for count in group):,}",
            "differ": str(sum(count.differing_tokens for count in group)),
            "chunks": f"{sum(count.chunks for count in group):,}",
            "chunks differ": str(sum(count.differing_chunks for count in group)),
        }
        for (rollouts, rows, length), group in grouped.items()
    ]


def _length(case: ExactCase) -> str:
    if case.length is None:
        return "as sampled"
    return f"1 to {case.length}" if case.ragged else str(case.length)


def _figures(counts: Sequence[ExactCount]) -> dict[str, int]:
    names = ("tokens", "differing_tokens", "chunks", "differing_chunks")
    return {name: sum(getattr(count, name) for count in counts) for name in names}
