"""The `toploc` package's column: hands it the proofs of jobs with the verifier's own rows, and outlives its crashes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from protocol.errors import Misconfigured
from protocol.wire.toploc.codec import chunk_spans
from tests.zoo.stage import Judged, Stage

CRASHES = 3
"""After so many without an answer in between, the rest is taken to crash as well."""
PYTHON = os.environ.get("ASSIZE_TOPLOC_PYTHON", sys.executable)


@dataclass(frozen=True, slots=True)
class Said:
    """Share of jobs it would catch at each of its thresholds, of the ``jobs`` it could be shown.

    ``jobs`` 0: nothing it could be shown, since it reads no files. ``crashes`` jobs ended its process, or made
    it raise. Of ``chunks`` verified, so many pass; a job without any passes, as ``all([])`` does.
    """

    paper: float = 0.0
    production: float = 0.0
    jobs: int = 0
    crashes: int = 0
    chunks: int = 0
    chunks_paper: int = 0
    chunks_production: int = 0


def insist_on_toploc() -> None:
    """``Misconfigured`` where the package is not there."""
    found = subprocess.run([PYTHON, "-c", "import torch, toploc"], capture_output=True, check=False, cwd="/")
    if found.returncode != 0:
        raise Misconfigured(
            "the toploc package is not installed: run `make zoo`, or pip install --no-build-isolation "
            "--no-binary toploc toploc==0.1.6"
        )


def ask(stage: Stage, jobs: Sequence[Judged]) -> Said:
    """Returns what the package says of ``jobs``."""
    shown = [rows_and_proofs(stage, job) for job in jobs]
    cases = [case for case in shown if case is not None]
    if not cases:
        return Said()
    answers = _answers(cases)
    verified = [answer for answer in answers if "chunks" in answer]
    sums = {name: sum(answer[name] for answer in verified) for name in ("chunks", "paper", "production")}
    caught = {name: sum(a[name] < a["chunks"] for a in verified) / len(cases) for name in ("paper", "production")}
    crashes = len(cases) - len(verified)
    return Said(
        **caught,
        jobs=len(cases),
        crashes=crashes,
        chunks=sums["chunks"],
        chunks_paper=sums["paper"],
        chunks_production=sums["production"],
    )


def rows_and_proofs(stage: Stage, judged: Judged) -> list[tuple[Any, list[bytes]]] | None:
    """Each chunk's rows with its proof; a rollout with a wrong number of proofs as a whole. None: cannot be read."""
    read = stage.read(judged)
    if read is None:
        return None
    artifact, found = read
    case: list[tuple[Any, list[bytes]]] = []
    for rollout, hidden_TH in zip(artifact.rollouts, found.hidden_SH.split(found.lengths_N.tolist()), strict=True):
        bits_TH = hidden_TH.contiguous().view(torch.int16).numpy()
        spans = chunk_spans(len(bits_TH))
        if len(rollout.proofs) == len(spans):
            proved = zip(spans, rollout.proofs, strict=True)
            case += [(bits_TH[start:stop].copy(), [proof]) for (start, stop), proof in proved]
        else:
            case.append((bits_TH, list(rollout.proofs)))
    return case


def _answers(cases: list[Any]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.pickle"
        path.write_bytes(pickle.dumps(cases))
        crashes = 0
        while len(answers) < len(cases):
            if crashes == CRASHES:
                answers += [{"crashed": True}] * (len(cases) - len(answers))
                break
            script = str(Path(__file__).with_name("reference.py"))
            words = [PYTHON, "-I", script, str(path), str(len(answers))]
            done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            answers += lines
            crashes = 1 if lines else crashes + 1
            if len(answers) < len(cases):
                answers.append({"crashed": done.returncode})
    return answers
