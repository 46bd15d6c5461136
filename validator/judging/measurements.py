"""Measurements of artifacts: one prefill over many jobs, distances of their proofs, columns of the evidence.

Axes: N rollouts of a job, S sampled tokens, C chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.tensor.model import DTYPES, Model
from protocol.tensor.proofs import distances_batch, hash_chunks
from protocol.wire.evidence import Measurements
from protocol.wire.rollout import Artifact
from protocol.wire.rules import Rules, Sequential
from protocol.wire.sampling import noise_key
from protocol.wire.toploc.codec import Distance
from validator.judging.artifact_checks import hashes, polynomials
from validator.judging.check import TokenMeasurements
from validator.judging.numeric_checks import segment_max
from validator.judging.prefill import Completed, Prefill, prefill, prefill_exactly
from validator.judging.statistics import log_likelihood_ratios


@dataclass(frozen=True, slots=True)
class SeededArtifact:
    """An artifact with the rollouts that the rules ask for, its job's seed, and whether its proofs decode."""

    seed: bytes
    artifact: Artifact
    well_formed: bool = True


def measure(model: Model, rules: Rules, jobs: Sequence[SeededArtifact]) -> list[tuple[Prefill, TokenMeasurements]]:
    """Returns each job's part of one shared prefill, and its measurements.

    Raises:
        Unavailable: the model gives numbers that are not finite.
    """
    if not jobs:
        return []
    size = rules.rollouts_per_job
    whole = _prefill(model, rules, _sequences(jobs))
    parts = [whole.slice(index * size, (index + 1) * size) for index in range(len(jobs))]
    formed = [index for index, job in enumerate(jobs) if job.well_formed]
    found = _distances([parts[index] for index in formed], [jobs[index].artifact for index in formed], rules)
    distances = dict(zip(formed, found, strict=True))
    return [
        (part, _measurements(part, job, distances.get(index, [[]] * size), rules))
        for index, (part, job) in enumerate(zip(parts, jobs, strict=True))
    ]


def columns_of(measured: TokenMeasurements, sequential: Sequential) -> Measurements:
    """Returns the columns of the evidence."""
    lengths_N = measured.lengths_N
    starts_N = np.cumsum(lengths_N) - lengths_N
    pieces = np.split(measured.apart_S, starts_N[1:])
    ratios_S = log_likelihood_ratios(measured.margins_S, measured.gaps_S, sequential)
    return Measurements(
        tokens_N=lengths_N.astype(np.uint32),
        flips_N=np.add.reduceat((measured.margins_S > 0).astype(np.uint32), starts_N),
        up_N=np.add.reduceat((measured.leads_S > 0).astype(np.uint32), starts_N),
        margin_max_N=segment_max(measured.margins_S, lengths_N),
        margin_sum_N=np.add.reduceat(measured.margins_S, starts_N),
        gap_min_N=np.minimum.reduceat(measured.gaps_S, starts_N),
        llr_N=np.add.reduceat(ratios_S, starts_N).astype(np.float32),
        logprob_median_N=np.array([np.sort(piece)[len(piece) // 2] for piece in pieces], np.float32),
        logprob_max_N=segment_max(measured.apart_S, lengths_N),
        chunks_N=measured.chunks_N.astype(np.uint32),
        rel_C=measured.rel_C.astype(np.float32),
        null_C=measured.null_C.astype(np.float32),
    )


def _prefill(model: Model, rules: Rules, sequences: Sequence[Completed]) -> Prefill:
    """Returns the prefill of whole jobs, one after another."""
    head_dtype, size = DTYPES[rules.model.head_dtype], rules.rollouts_per_job
    if rules.model.exact is None:
        return prefill(model, sequences, rules.temperature, head_dtype)
    parts = [sequences[start : start + size] for start in range(0, len(sequences), size)]
    return prefill_exactly(model, parts, rules.model.exact.window, rules.temperature, head_dtype)


def _sequences(jobs: Sequence[SeededArtifact]) -> list[Completed]:
    return [
        Completed(rollout.prompt_tokens, rollout.output_tokens, noise_key(job.seed, n))
        for job in jobs
        for n, rollout in enumerate(job.artifact.rollouts)
    ]


def _distances(parts: Sequence[Prefill], artifacts: Sequence[Artifact], rules: Rules) -> list[list[list[Distance]]]:
    """Distances of each job's proofs. A forger's best guess is the same chunk of another prompt's rollout."""
    if not parts or not rules.chunks_interpolated:
        return [[[]] * rules.rollouts_per_job for _ in parts]
    size, step = rules.rollouts_per_job, rules.samples_per_group
    others = [base + (n + step) % size for base in range(0, size * len(parts), size) for n in range(size)]
    found = distances_batch(
        torch.cat([part.hidden_SH for part in parts]),
        [length for part in parts for length in part.lengths_N.tolist()],
        [given for artifact in artifacts for given in polynomials(artifact, rules)],
        previous=others if rules.groups_per_job > 1 else None,
    )
    return [found[base : base + size] for base in range(0, len(found), size)]


def _unequal(part: Prefill, artifact: Artifact) -> NDArray[np.int64]:
    """Returns the number of chunks of each rollout (N,) whose hash is not that of the verifier's hidden states."""
    own = hash_chunks(part.hidden_SH, part.lengths_N.tolist())
    given = [hashes(rollout) for rollout in artifact.rollouts]
    return np.array([sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(own, given, strict=True)])


def _measurements(
    part: Prefill, job: SeededArtifact, distances: Sequence[Sequence[Distance]], rules: Rules
) -> TokenMeasurements:
    artifact, flat = job.artifact, [distance for chunks in distances for distance in chunks]
    return TokenMeasurements(
        lengths_N=part.lengths_N,
        margins_S=part.margins_S,
        gaps_S=part.gaps_S,
        leads_S=part.leads_S,
        reported_S=np.concatenate([rollout.logprobs for rollout in artifact.rollouts]),
        recomputed_S=part.logprobs_S,
        rel_C=np.array([distance.rel for distance in flat], np.float64),
        null_C=np.array([distance.null for distance in flat], np.float64),
        canonical_C=np.array([distance.modulus_canonical for distance in flat], np.bool_),
        chunks_N=np.array([len(chunks) for chunks in distances], np.int64),
        unequal_N=_unequal(part, artifact) if rules.chunks_hashed and job.well_formed else None,
        temperature=rules.temperature or 1.0,
    )
