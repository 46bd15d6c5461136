"""Reasons from findings, and votes from reasons. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from protocol.wire.evidence import Finding, JobEvidence
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, abstention, vote_on
from validator.judging.registry import CHECKS


def ranking() -> list[Reason]:
    """Returns every reason of the registered checks, most serious first: fraud, then in the order of the checks."""
    reasons = [reason for check in CHECKS for reason in check.reasons]
    return sorted(reasons, key=lambda reason: not reason.fraud)


def reason_of(findings: Sequence[Finding]) -> Reason:
    """Returns the most serious reason among ``findings``; ``ACCEPTED`` if there are none."""
    return min((finding.reason for finding in findings), key=ranking().index, default=Reason.ACCEPTED)


def with_finding(evidence: JobEvidence, finding: Finding) -> JobEvidence:
    """Returns ``evidence`` with one more finding, and the reason that follows."""
    findings = (*evidence.findings, finding)
    return replace(evidence, findings=findings, reason=reason_of(findings))


def vote_of(reasons: Mapping[int, Reason], evidence_root: bytes) -> Vote:
    """Returns the vote for ``reasons`` (by job), or an abstention if one job could not be judged."""
    if Reason.ABSTAIN in reasons.values():
        return abstention()
    return vote_on(reasons, evidence_root)
