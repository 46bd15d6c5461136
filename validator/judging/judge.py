"""The judge: from claims and artifact bytes to a judgement of each job.

    read the artifact ──> checks that the rest relies on ──> one prefill for all jobs ──> measure ──> all other checks

Axes: N rollouts of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocol.environments.environment import Environment
from protocol.errors import Rejected
from protocol.tensor.model import Model
from protocol.wire.evidence import Finding, JobEvidence, Measurements
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Limits
from protocol.wire.rules import Rules
from protocol.wire.seeds import prompt_seed
from protocol.wire.units import ModelShape
from validator.judging.artifact_checks import artifact_limits, check_proofs, job_units, read_artifact
from validator.judging.check import Check, ReadJob, TokenMeasurements
from validator.judging.claims import Claim
from validator.judging.fingerprinting import KeptRows, keep_rows
from validator.judging.measurements import SeededArtifact, columns_of, measure
from validator.judging.prefill import Numerics, Prefill
from validator.judging.registry import CHECKS
from validator.judging.verdict import reason_of, with_finding


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The model of one version, in evaluation mode, its shape for counting work units, and what its bits depend on.

    ``tasks`` are those that the version sets.
    """

    model: Model
    shape: ModelShape
    numerics: Numerics
    tasks: Environment

    @property
    def vocabulary(self) -> int:
        """Size of the model's vocabulary."""
        return int(self.model.network.config.vocab_size)


@dataclass(frozen=True, slots=True)
class FetchedJob:
    """A claim and its artifact: the fetched blob, or the finding that explains its absence."""

    claim: Claim
    data: bytes | Finding


@dataclass(frozen=True, slots=True)
class Judgement:
    """The evidence of one job; ``evidence.reason`` is the verdict.

    ``rows`` are kept for a juror's fingerprint: None if the model did not run, or no juror asks.
    """

    claim: Claim
    evidence: JobEvidence
    rows: KeptRows | None = None

    @property
    def reason(self) -> Reason:
        """The verdict: ``ACCEPTED``, or the most serious reason found."""
        return self.evidence.reason


@dataclass(frozen=True, slots=True)
class ExaminedJob:
    """A judgement and everything it rests on.

    read      None: the artifact is not the one that was signed, or could not be fetched
    prefill   None, as ``measured``: the model had nothing to run
    """

    judgement: Judgement
    read: ReadJob | None = None
    prefill: Prefill | None = None
    measured: TokenMeasurements | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """A job before the model runs; with findings, the model does not run."""

    claim: Claim
    job: ReadJob | None
    findings: list[Finding]


def judge(
    policy: PolicyVersion,
    rules: Rules,
    jobs: Sequence[FetchedJob],
    juror: int | None = None,
) -> list[Judgement]:
    """Returns a judgement for each job, in their order; all of them share one prefill.

    Any bytes give a reason. ``juror`` is the node whose fingerprint will be asked for, if any.

    Raises:
        Unavailable: the verifier itself failed; the caller abstains.
    """
    examined = examine(policy, rules, jobs)
    if juror is None:
        return [one.judgement for one in examined]
    return [replace(one.judgement, rows=rows_for(juror, one, policy)) for one in examined]


def rows_for(juror: int, examined: ExaminedJob, policy: PolicyVersion) -> KeptRows | None:
    """Returns the rows of a job that the fingerprint of ``juror`` is of; None if the model did not run."""
    if examined.prefill is None:
        return None
    return keep_rows(examined.prefill, policy.numerics, examined.judgement.claim.seed, juror)


def examine(policy: PolicyVersion, rules: Rules, jobs: Sequence[FetchedJob]) -> list[ExaminedJob]:
    """Judges as ``judge`` does, and returns what each judgement rests on as well."""
    checks = [check for check in CHECKS if check.applies(rules.thresholds)]
    readings = [_read(policy, rules, job, checks) for job in jobs]
    running = [
        (index, SeededArtifact(reading.claim.seed, reading.job.artifact, not reading.job.proof_findings))
        for index, reading in enumerate(readings)
        if reading.job is not None and not reading.findings
    ]
    found = measure(policy.model, rules, [job for _, job in running])
    measured = {index: pair for (index, _), pair in zip(running, found, strict=True)}
    return [_conclude(policy, rules, reading, measured.get(index), checks) for index, reading in enumerate(readings)]


def judge_unfit(claims: Sequence[Claim], error: UnfitCheckpoint) -> list[Judgement]:
    """Returns the judgements of jobs of a version that is no checkpoint of its run: void, whatever they hold."""
    return [judge_unread(claim, Finding(Reason.UNFIT_CHECKPOINT, str(error))) for claim in claims]


def judge_unread(claim: Claim, finding: Finding) -> Judgement:
    """Returns the judgement of a job without an artifact; ``finding`` says why there is none."""
    return Judgement(claim, _evidence(claim, [finding], None, None))


def with_findings(judgements: Sequence[Judgement], by_node: Mapping[int, Finding]) -> list[Judgement]:
    """Returns ``judgements`` with a finding added to every job of the nodes in ``by_node``."""
    return [
        judgement
        if (finding := by_node.get(judgement.claim.node)) is None
        else replace(judgement, evidence=with_finding(judgement.evidence, finding))
        for judgement in judgements
    ]


def prompts_of(model: Model, rules: Rules, environment: Environment, seed: bytes) -> list[tuple[int, ...]]:
    """Returns the tokens of the prompts that follow from a job's seed, one for each group."""
    problems = (environment.problem(prompt_seed(seed, group)) for group in range(rules.groups_per_job))
    return [model.prompt_tokens(problem.prompt, rules) for problem in problems]


def limits_of(rules: Rules, environment: Environment) -> Limits:
    """Returns the size limits of a job's artifact."""
    return artifact_limits(rules, environment.most_prompt_tokens(rules))


def _read(policy: PolicyVersion, rules: Rules, job: FetchedJob, checks: Sequence[Check]) -> _Reading:
    if isinstance(job.data, Finding):
        return _Reading(job.claim, None, [job.data])
    try:
        artifact = read_artifact(job.claim, job.data, limits_of(rules, policy.tasks))
    except Rejected as error:
        return _Reading(job.claim, None, [Finding(Reason(error.reason or Reason.SHAPE), str(error))])
    read = ReadJob(
        claim=job.claim,
        artifact=artifact,
        prompts=prompts_of(policy.model, rules, policy.tasks, job.claim.seed),
        rules=rules,
        vocabulary=policy.vocabulary,
        stop_tokens=policy.model.stop_tokens(rules),
        shape=policy.shape,
        proof_findings=tuple(check_proofs(artifact, rules)),
    )
    required = (check.requires(read) for check in checks if check.requires is not None)
    return _Reading(job.claim, read, next((findings for findings in required if findings), []))


def _conclude(
    policy: PolicyVersion,
    rules: Rules,
    reading: _Reading,
    seen: tuple[Prefill, TokenMeasurements] | None,
    checks: Sequence[Check],
) -> ExaminedJob:
    claim, read = reading.claim, reading.job
    if read is None or seen is None:
        return ExaminedJob(Judgement(claim, _evidence(claim, reading.findings, None, None)), read)
    part, measured = seen
    findings = [finding for check in checks for finding in check.after_prefill(read, measured)]
    columns = columns_of(measured, rules.sequential)
    evidence = _evidence(claim, findings, columns, job_units(read.artifact, policy.shape))
    return ExaminedJob(Judgement(claim, evidence), read, part, measured)


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
