"""Measurements of specimens, made as the judge makes them: one prefill for many jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from protocol.errors import Misconfigured, Rejected
from protocol.wire.rollout import Artifact, decode
from protocol.wire.rules import Rules
from protocol.wire.specimens import INDEX, Specimens, decode_index, file_of
from validator.judging.check import TokenMeasurements
from validator.judging.judge import PolicyVersion
from validator.judging.measurements import SeededArtifact
from validator.judging.measurements import measure as measure_artifacts

JOBS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredJob(TokenMeasurements):
    """A job's measurements, and how it was made."""

    maker: str
    model: str
    batch: int


def read_specimens(folder: Path) -> Specimens:
    """Returns a folder's index; raises ``Misconfigured`` if there is none."""
    try:
        return decode_index((folder / INDEX).read_text())
    except (OSError, UnicodeDecodeError, Rejected) as error:
        raise Misconfigured(f"no specimens in {folder} (make them with `assize worker generate`): {error}") from error


def measure(
    policy: PolicyVersion,
    rules: Rules,
    folder: Path,
    name: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[MeasuredJob]:
    """Measures every job in ``folder`` with ``policy``; ``progress`` is called with the jobs measured and all.

    ``name`` replaces the maker's.

    Raises:
        Misconfigured: an artifact is missing, or was made under other rules or weights.
    """
    specimens = read_specimens(folder)
    jobs = [(batch.size, job) for batch in specimens.batches for job in batch.jobs]
    found: list[MeasuredJob] = []
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        part = jobs[start : start + JOBS_AT_ONCE]
        artifacts = [_read(folder, specimens, rules, job) for _, job in part]
        seeded = [
            SeededArtifact(specimens.job_seed(job), artifact)
            for (_, job), artifact in zip(part, artifacts, strict=True)
        ]
        for (batch, _), (_, numbers) in zip(part, measure_artifacts(policy.model, rules, seeded), strict=True):
            columns = {column.name: getattr(numbers, column.name) for column in fields(numbers)}
            found.append(MeasuredJob(**columns, maker=name or specimens.maker, model=specimens.model, batch=batch))
        progress(len(found), len(jobs))
    return found


def _read(folder: Path, specimens: Specimens, rules: Rules, job: int) -> Artifact:
    try:
        artifact = decode((folder / file_of(job)).read_bytes())
    except (OSError, Rejected) as error:
        raise Misconfigured(f"invalid artifact {folder / file_of(job)}: {error}; make the specimens again") from error
    if len(artifact.rollouts) != rules.rollouts_per_job or artifact.manifest_root != specimens.weights:
        raise Misconfigured(f"{folder / file_of(job)} was made under other rules or weights: make the specimens again")
    return artifact
