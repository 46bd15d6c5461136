"""From findings to a reason for each job, and from reasons to a vote. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from protocol.wire.evidence import Finding, JobEvidence
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, abstention, vote_on

SEVERITY = (
    Reason.DUPLICATE,
    Reason.WRONG_PROMPT,
    Reason.SAMPLING_FRAUD,
    Reason.SEQUENCE,
    Reason.UNAVAILABLE,
    Reason.STALE_BEACON,
    Reason.WRONG_ROOT,
    Reason.WRONG_POLICY,
    Reason.SHAPE,
    Reason.SAMPLING_VOID,
    Reason.ENDING,
    Reason.ACTIVATIONS,
    Reason.LOGPROBS,
    Reason.UNITS,
)
"""Fraud first, then what leaves least of the artifact to be judged."""


def reason_of(findings: Sequence[Finding]) -> Reason:
    """Returns the most serious reason found, ``ACCEPTED`` where nothing was."""
    return min((finding.reason for finding in findings), key=SEVERITY.index, default=Reason.ACCEPTED)


def burdened(evidence: JobEvidence, finding: Finding) -> JobEvidence:
    """Returns the evidence with one more finding, and the reason that follows."""
    findings = (*evidence.findings, finding)
    return replace(evidence, findings=findings, reason=reason_of(findings))


def vote_of(reasons: Mapping[int, Reason], evidence_root: bytes, appeal: bool = False) -> Vote:
    """Returns the vote that says ``reasons`` (by job); an abstention as soon as one job could not be judged.

    On appeal an artifact that cannot be fetched says nothing about the verdict appealed against: nothing is decided.
    """
    unjudged = (Reason.ABSTAIN, Reason.UNAVAILABLE) if appeal else (Reason.ABSTAIN,)
    if any(reason in unjudged for reason in reasons.values()):
        return abstention()
    return vote_on(reasons, evidence_root)
