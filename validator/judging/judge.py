"""From claims and artifact bytes to a judgement of each job: read, one prefill for all of them, measure, check.

Axes: N rollouts of a job, S sampled tokens, C chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from protocol.environments.environment import Environment, Problem
from protocol.errors import Rejected
from protocol.tensor.model import Model
from protocol.tensor.proofs import distances_batch
from protocol.wire.evidence import F32, Finding, JobEvidence, Measurements
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact
from protocol.wire.rules import Rules, Sequential
from protocol.wire.sampling import noise_key
from protocol.wire.seeds import prompt_seed
from protocol.wire.toploc.codec import Distance
from protocol.wire.units import ModelShape
from validator.judging import checks
from validator.judging.claims import Claim
from validator.judging.prefill import DTYPES, Completed, Prefill, prefill
from validator.judging.statistics import log_likelihood_ratios
from validator.judging.verdict import reason_of


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The model of one version, in evaluation mode, and the sizes its work is counted by."""

    model: Model
    shape: ModelShape

    @property
    def vocabulary(self) -> int:
        """Number of tokens the model knows."""
        return int(self.model.network.config.vocab_size)


@dataclass(frozen=True, slots=True)
class FetchedJob:
    """A claim and what was fetched for it: the bytes, or the finding that stands in their place."""

    claim: Claim
    data: bytes | Finding


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one job. ``evidence.reason`` is the verdict."""

    claim: Claim
    evidence: JobEvidence

    @property
    def reason(self) -> Reason:
        """Why the job is not accepted, or ``ACCEPTED``."""
        return self.evidence.reason


@dataclass(frozen=True, slots=True)
class _Reading:
    """An artifact as far as it could be read without the model; ``artifact`` None where nothing more can be said."""

    claim: Claim
    problems: list[Problem]
    artifact: Artifact | None
    findings: list[Finding]

    @property
    def runs(self) -> bool:
        """Whether the model has anything to say of it."""
        return self.artifact is not None and not self.findings


def judge(policy: PolicyVersion, rules: Rules, environment: Environment, jobs: Sequence[FetchedJob]) -> list[Judgement]:
    """Returns a judgement for each job, in their order; all of them share one prefill.

    Any bytes give a reason. Raises ``Unavailable`` where the verifier itself fails: the caller abstains.
    """
    readings = [_read(policy, rules, environment, job) for job in jobs]
    running = [reading for reading in readings if reading.runs]
    measured = dict(zip(map(id, running), _measure(policy, rules, running), strict=True))
    return [_conclude(policy, rules, environment, reading, measured.get(id(reading))) for reading in readings]


def judge_unread(claim: Claim, finding: Finding) -> Judgement:
    """Returns the judgement of a job whose artifact never came: ``finding`` says so, and no model has a part in it."""
    return Judgement(claim, _evidence(claim, [finding], None, None))


def problems_of(rules: Rules, environment: Environment, claim: Claim) -> list[Problem]:
    """Returns the problems that follow from the job's seed, one for each group."""
    seed = claim.seed
    return [environment.problem(prompt_seed(seed, group)) for group in range(rules.groups_per_job)]


def _read(policy: PolicyVersion, rules: Rules, environment: Environment, job: FetchedJob) -> _Reading:
    problems = problems_of(rules, environment, job.claim)
    if isinstance(job.data, Finding):
        return _Reading(job.claim, problems, None, [job.data])
    limits = checks.artifact_limits(rules, [problem.prompt for problem in problems])
    try:
        artifact = checks.read_artifact(job.claim, job.data, limits)
    except Rejected as error:
        return _Reading(job.claim, problems, None, [Finding(Reason(error.reason or Reason.SHAPE), str(error))])
    findings = checks.check_shape(artifact, rules, policy.vocabulary)
    prompts = [policy.model.prompt_tokens(problem.prompt) for problem in problems]
    return _Reading(job.claim, problems, artifact, findings or checks.check_prompts(artifact, prompts))


def _measure(
    policy: PolicyVersion, rules: Rules, readings: Sequence[_Reading]
) -> list[tuple[Prefill, list[list[Distance]], list[Finding]]]:
    """For each artifact its part of the prefill, the distances of its proofs, and what is wrong with their form."""
    if not readings:
        return []
    whole = prefill(policy.model, _sequences(readings), rules.temperature, DTYPES[rules.model.head_dtype])
    size = rules.rollouts_per_job
    parts = [whole.slice(index * size, (index + 1) * size) for index in range(len(readings))]
    malformed = [checks.check_proofs(_artifact(reading)) for reading in readings]
    formed = [index for index, findings in enumerate(malformed) if not findings]
    distances = _distances([parts[index] for index in formed], [_artifact(readings[index]) for index in formed], rules)
    by_index = dict(zip(formed, distances, strict=True))
    return [(part, by_index.get(index, []), malformed[index]) for index, part in enumerate(parts)]


def _sequences(readings: Sequence[_Reading]) -> list[Completed]:
    found = []
    for reading in readings:
        seed = reading.claim.seed
        for n, rollout in enumerate(_artifact(reading).rollouts):
            found.append(Completed(rollout.prompt_tokens, rollout.output_tokens, noise_key(seed, n)))
    return found


def _distances(parts: Sequence[Prefill], artifacts: Sequence[Artifact], rules: Rules) -> list[list[list[Distance]]]:
    """Distances of each job's proofs. The guess a forger could make is the same chunk of another prompt's rollout."""
    if not parts:
        return []
    size, step = rules.rollouts_per_job, rules.samples_per_group
    others = [base + (n + step) % size for base in range(0, size * len(parts), size) for n in range(size)]
    found = distances_batch(
        torch.cat([part.hidden_SH for part in parts]),
        [length for part in parts for length in part.lengths_N.tolist()],
        [rollout.proofs for artifact in artifacts for rollout in artifact.rollouts],
        previous=others if rules.groups_per_job > 1 else None,
    )
    return [found[base : base + size] for base in range(0, len(found), size)]


def _conclude(
    policy: PolicyVersion,
    rules: Rules,
    environment: Environment,
    reading: _Reading,
    measured: tuple[Prefill, list[list[Distance]], list[Finding]] | None,
) -> Judgement:
    claim, artifact = reading.claim, reading.artifact
    if artifact is None or measured is None:
        return Judgement(claim, _evidence(claim, reading.findings, None, None))
    part, distances, malformed = measured
    reported_S = np.concatenate([rollout.logprobs for rollout in artifact.rollouts])
    findings = [
        *malformed,
        *checks.check_sampling(part.margins_S, part.lengths_N, rules.thresholds),
        *checks.check_endings(artifact, policy.model.stop_token, rules.max_tokens),
        *(checks.check_activations(distances, rules.thresholds) if distances else ()),
        *checks.check_logprobs(reported_S, part.logprobs_S, rules.thresholds),
        *checks.check_units(claim, artifact, policy.shape),
    ]
    rewards_N = _rewards(policy, rules, environment, reading.problems, artifact)
    measurements = measurements_of(part, reported_S, rewards_N, distances, rules.sequential)
    return Judgement(claim, _evidence(claim, findings, measurements, checks.job_units(artifact, policy.shape)))


def _rewards(
    policy: PolicyVersion, rules: Rules, environment: Environment, problems: Sequence[Problem], artifact: Artifact
) -> F32:
    texts = [policy.model.completion_text(rollout.output_tokens) for rollout in artifact.rollouts]
    per_group = rules.samples_per_group
    return np.array([environment.reward(problems[n // per_group], text) for n, text in enumerate(texts)], np.float32)


def measurements_of(
    part: Prefill,
    reported_S: F32,
    rewards_N: F32,
    distances: Sequence[Sequence[Distance]],
    sequential: Sequential,
) -> Measurements:
    """Returns the columns of the evidence; ``distances`` may be empty, where the proofs were malformed."""
    starts_N = np.cumsum(part.lengths_N) - part.lengths_N
    difference_S = np.abs(reported_S - part.logprobs_S)
    pieces = np.split(difference_S, starts_N[1:])
    ratios_S = log_likelihood_ratios(part.margins_S, part.gaps_S, sequential)
    flat = [distance for chunks in distances for distance in chunks]
    counts = [len(chunks) for chunks in distances] or [0] * len(part.lengths_N)
    return Measurements(
        tokens_N=part.lengths_N.astype(np.uint32),
        rewards_N=rewards_N,
        flips_N=np.add.reduceat((part.margins_S > 0).astype(np.uint32), starts_N),
        up_N=np.add.reduceat((part.leads_S > 0).astype(np.uint32), starts_N),
        margin_max_N=checks.segment_max(part.margins_S, part.lengths_N),
        margin_sum_N=np.add.reduceat(part.margins_S, starts_N),
        gap_min_N=np.minimum.reduceat(part.gaps_S, starts_N),
        llr_N=np.add.reduceat(ratios_S, starts_N).astype(np.float32),
        logprob_median_N=np.array([np.sort(piece)[len(piece) // 2] for piece in pieces], np.float32),
        logprob_max_N=checks.segment_max(difference_S, part.lengths_N),
        chunks_N=np.array(counts, np.uint32),
        rel_C=np.array([distance.rel for distance in flat], np.float32),
        null_C=np.array([distance.null for distance in flat], np.float32),
    )


def _evidence(
    claim: Claim, findings: Sequence[Finding], measurements: Measurements | None, counted: int | None
) -> JobEvidence:
    return JobEvidence(
        job=claim.job,
        node=claim.node,
        root=claim.root,
        reason=reason_of(findings),
        units_claimed=claim.units,
        units_counted=counted,
        findings=tuple(findings),
        measurements=measurements,
    )


def _artifact(reading: _Reading) -> Artifact:
    assert reading.artifact is not None
    return reading.artifact
