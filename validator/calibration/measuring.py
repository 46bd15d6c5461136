"""Specimens through the validator's own eyes: one prefill for many jobs, and every number that a check looks at.

Axes: N rollouts of a job, S sampled tokens, C chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Rejected
from protocol.tensor.proofs import distances_batch
from protocol.wire.rollout import Artifact, decode
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from protocol.wire.specimens import INDEX, Specimens, decode_index, file_of
from validator.judging.judge import PolicyVersion
from validator.judging.prefill import DTYPES, Completed, Prefill, prefill

F32 = NDArray[np.float32]
JOBS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """What was measured on one job of R rollouts. ``maker``, ``model`` and ``batch`` say how it was made.

    margins_S, gaps_S, leads_S  as in ``validator.judging.prefill.Prefill``
    reported_S, recomputed_S    logprobs: the maker's and the verifier's
    rel_C, null_C, chunks_N     distances of the proofs, the best forgery's, and how many chunks a rollout has
    """

    maker: str
    model: str
    batch: int
    lengths_N: NDArray[np.int64]
    margins_S: F32
    gaps_S: F32
    leads_S: F32
    reported_S: F32
    recomputed_S: F32
    rel_C: F32
    null_C: F32
    chunks_N: NDArray[np.int64]

    @property
    def apart_S(self) -> F32:
        """|reported − recomputed|, in nats."""
        apart_S: F32 = np.abs(self.reported_S - self.recomputed_S)
        return apart_S


def read_specimens(folder: Path) -> Specimens:
    """Returns a folder's index. ``Misconfigured`` where there is none."""
    try:
        return decode_index((folder / INDEX).read_text())
    except (OSError, UnicodeDecodeError, Rejected) as error:
        raise Misconfigured(f"{folder} holds no specimens (see `assize worker generate`): {error}") from error


def measure(
    policy: PolicyVersion,
    rules: Rules,
    folder: Path,
    name: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[MeasuredJob]:
    """Measures every job in ``folder`` with ``policy``; ``progress`` is told the tokens of each pass.

    ``name`` replaces the maker's. ``Misconfigured`` where an artifact is not there or not of these rules.
    """
    specimens = read_specimens(folder)
    jobs = [(batch.size, job) for batch in specimens.batches for job in batch.jobs]
    found: list[MeasuredJob] = []
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        part = jobs[start : start + JOBS_AT_ONCE]
        artifacts = [_read(folder, specimens, rules, job) for _, job in part]
        seen = _see(policy, rules, [specimens.job_seed(job) for _, job in part], artifacts)
        for (batch, _), artifact, numbers in zip(part, artifacts, seen, strict=True):
            found.append(_job(name or specimens.maker, specimens.model, batch, artifact, *numbers))
        progress(sum(len(job.margins_S) for job in found[-len(part) :]))
    return found


def _read(folder: Path, specimens: Specimens, rules: Rules, job: int) -> Artifact:
    try:
        artifact = decode((folder / file_of(job)).read_bytes())
    except (OSError, Rejected) as error:
        raise Misconfigured(f"{folder / file_of(job)} is no artifact: {error}; make the specimens again") from error
    if len(artifact.rollouts) != rules.rollouts_per_job or artifact.manifest_root != specimens.weights:
        raise Misconfigured(f"{folder / file_of(job)} was made under other rules or weights: make the specimens again")
    return artifact


def _see(
    policy: PolicyVersion, rules: Rules, seeds: Sequence[bytes], artifacts: Sequence[Artifact]
) -> Iterator[tuple[Prefill, F32, F32, NDArray[np.int64]]]:
    """For each artifact its part of the prefill, and distance, null and number of its chunks."""
    size, step = rules.rollouts_per_job, rules.samples_per_group
    rollouts = [rollout for artifact in artifacts for rollout in artifact.rollouts]
    keys = [noise_key(seed, n) for seed in seeds for n in range(size)]
    sequences = [
        Completed(rollout.prompt_tokens, rollout.output_tokens, key)
        for rollout, key in zip(rollouts, keys, strict=True)
    ]
    whole = prefill(policy.model, sequences, rules.temperature, DTYPES[rules.model.head_dtype])
    others = [base + (n + step) % size for base in range(0, len(rollouts), size) for n in range(size)]
    found = distances_batch(
        whole.hidden_SH,
        whole.lengths_N.tolist(),
        [rollout.proofs for rollout in rollouts],
        previous=others if rules.groups_per_job > 1 else None,
    )
    for base in range(0, len(rollouts), size):
        chunks = [distance for one in found[base : base + size] for distance in one]
        rel_C, null_C = (np.array([getattr(d, name) for d in chunks], np.float32) for name in ("rel", "null"))
        counts_N = np.array([len(one) for one in found[base : base + size]], np.int64)
        yield whole.slice(base, base + size), rel_C, null_C, counts_N


def _job(
    maker: str,
    model: str,
    batch: int,
    artifact: Artifact,
    part: Prefill,
    rel_C: F32,
    null_C: F32,
    chunks_N: NDArray[np.int64],
) -> MeasuredJob:
    reported_S = np.concatenate([rollout.logprobs for rollout in artifact.rollouts])
    return MeasuredJob(
        *(maker, model, batch, part.lengths_N, part.margins_S, part.gaps_S, part.leads_S),
        *(reported_S, part.logprobs_S, rel_C, null_C, chunks_N),
    )
