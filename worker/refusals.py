"""Reasons for which jobs were refused, in words, with what was measured and the limit: from votes and their bundles."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.chain.events import VoteRevealed
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import events_of
from protocol.errors import AssizeError, Rejected
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.evidence import Finding, parse_signed
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, most_given, reasons_of
from worker.earnings import RefusedJob

MOST_EVIDENCE_BYTES = 8 << 20


class Refusals:
    """Explains refused jobs; each is looked up once."""

    def __init__(self, chain: Chain, client: CoordinatorClient) -> None:
        self._chain, self._client = chain, client
        self._known: dict[tuple[int, int], str] = {}

    def sentence(self, refused: RefusedJob) -> str:
        """Returns a sentence on a refused job. What does not answer is asked again the next time."""
        key = refused.round, refused.job
        if key not in self._known:
            try:
                self._known[key] = self._look_up(refused)
            except AssizeError as error:
                return sentence_of(refused, None, None, str(error))
        return self._known[key]

    def _look_up(self, refused: RefusedJob) -> str:
        revealed = events_of(self._chain, "Rounds", VoteRevealed, refused.round, refused.open_block)
        submitted = self._chain.latest().round(refused.round).submitted
        reason, roots = main_reason(revealed, refused.job, submitted)
        finding = self._finding(roots, refused.job, reason) if reason is not None else None
        return sentence_of(refused, reason, finding)

    def _finding(self, roots: Sequence[bytes], job: int, reason: Reason) -> Finding | None:
        """Returns the finding of a juror that voted for this reason, from the first bundle that can be read."""
        for root in roots:
            try:
                evidence = parse_signed(self._client.evidence(root, MOST_EVIDENCE_BYTES), root).evidence
            except AssizeError:
                continue
            findings = (found for each in evidence.jobs if each.job == job for found in each.findings)
            if (found := next((one for one in findings if one.reason is reason), None)) is not None:
                return found
        return None


def main_reason(revealed: Sequence[VoteRevealed], job: int, submitted: int) -> tuple[Reason | None, tuple[bytes, ...]]:
    """Returns the reason most jurors gave for refusing a job, and the roots of these jurors' bundles. PURE."""
    given: list[tuple[Reason, bytes]] = []
    for vote in revealed:
        try:
            reasons = reasons_of(Vote(vote.accept, vote.fraud, vote.reasons, vote.evidence_root), submitted)
        except Rejected:  # an unknown reason code
            continue
        if job in reasons and reasons[job] not in (Reason.ACCEPTED, Reason.ABSTAIN):
            given.append((reasons[job], vote.evidence_root))
    return most_given(given)


def sentence_of(refused: RefusedJob, reason: Reason | None, finding: Finding | None, problem: str = "") -> str:
    """Returns a sentence on a refused job. PURE."""
    place = f"round {refused.round}, job {refused.job} {refused.verdict}"
    if problem:
        return f"{place}: its votes cannot be read now: {problem}"
    if reason is None:
        return f"{place}: no juror gave a reason" if refused.verdict != "void round" else f"{place}: no quorum of votes"
    if finding is None:
        return f"{place}: {reason.sentence}"
    where = "" if finding.rollout is None else f" in rollout {finding.rollout}"
    measured = f": measured {finding.observed:.4g}, limit {finding.limit:.4g}" if finding.limit else ""
    return f"{place}: {reason.sentence} ({finding.detail}{where}{measured})"
