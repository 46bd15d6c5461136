"""A round being judged: its claims, the judgements so far, and how often judging failed here.

Failures of this validator are logged and counted; they never count against a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from protocol.chain.structs import State
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.receipts import Part, missing_receipts
from protocol.wire.rules import Rules
from validator.judging.claims import NO_ROOT, Claim
from validator.judging.judge import Judgement, judge_unfit, judge_unread, with_findings
from validator.judging.runs import RunContext
from validator.records.history import History
from validator.records.record import RecordPoint
from validator.records.rewards import SampledGroup
from validator.rounds import FollowedRound, SubmittedPart

ATTEMPTS = 3
"""Failures of this validator after which a round counts as impossible to judge."""

log = structlog.get_logger()


@dataclass(slots=True)
class JudgingProgress:
    """Judgements of one round by job, and the number of failures to judge it here."""

    judged: dict[int, Judgement] = field(default_factory=dict)
    failures: int = 0

    @property
    def impossible(self) -> bool:
        """True if judging has failed too often; the juror then abstains."""
        return self.failures >= ATTEMPTS


@dataclass(frozen=True, slots=True)
class JudgedRound:
    """A round to be judged; ``manifest_root`` is that of its policy version, from the chain."""

    followed: FollowedRound
    context: RunContext
    manifest_root: bytes
    progress: JudgingProgress

    @property
    def judged(self) -> bool:
        """True if the round is closed and every submitted job has a judgement."""
        return self.followed.state is not State.OPEN and set(self.followed.submitted_jobs) <= set(self.progress.judged)

    @property
    def judgements(self) -> list[Judgement]:
        """Judgements of the submitted jobs, ascending by job."""
        return [self.progress.judged[job] for job in self.followed.submitted_jobs]

    @property
    def waiting(self) -> list[Claim]:
        """Claims without a judgement, ascending by job."""
        return [self.claim(job) for job in sorted(self.followed.leaves) if job not in self.progress.judged]

    @property
    def record_point(self) -> RecordPoint:
        """The point in the run's history whose records count for this round."""
        return record_point(self.followed, self.context.rules)

    @property
    def owners(self) -> set[str]:
        """Owners of the nodes that submitted jobs."""
        return {self.followed.owners[leaf.node] for leaf in self.followed.leaves.values()}

    def claim(self, job: int) -> Claim:
        """Returns one submitted job as it stands on chain."""
        submitted = self.followed.leaves[job]
        return replace(
            self.missing(job),
            node=submitted.node,
            signed_beacon=submitted.beacon,
            units=submitted.leaf.units,
            root=submitted.leaf.root,
            uri=submitted.uri,
            claimed_before=job in self.followed.copied,
        )

    def missing(self, job: int) -> Claim:
        """Returns a listed job without a submission: the claim of nothing, under the root ``NO_ROOT``."""
        return Claim(
            chain_id=self.context.chain_id,
            rounds=self.context.rounds_address,
            round=self.followed.judged_round,
            job=job,
            node=0,
            beacon=self.followed.beacon,
            signed_beacon=b"",
            manifest_root=self.manifest_root,
            units=0,
            max_units=self.context.max_units,
            root=NO_ROOT,
            uri="",
            claimed_before=False,
            stores=tuple(store.place for store in self.context.rules.stores),
        )

    def claim_or_missing(self, job: int) -> Claim:
        """Returns a listed job, submitted or not."""
        return self.claim(job) if job in self.followed.leaves else self.missing(job)

    def weights_there(self) -> bool:
        """Returns whether the policy's weights have arrived; starts fetching them if they have not."""
        return self.context.weights.prepare(self.followed.policy_version, self.manifest_root)

    def settle_unreceipted(self) -> None:
        """Judges jobs as unavailable whose submission lacks the receipts that the run's rules ask for."""
        lacks: dict[bytes, str | None] = {}
        for claim in self.waiting if self.context.rules.availability is not None else ():
            part = self.followed.parts[claim.job]
            if part.leaves not in lacks:
                lacks[part.leaves] = missing_receipts(self.context.rules.availability, self._part(claim, part))
            if (lack := lacks[part.leaves]) is not None:
                self.record(judge_unread(claim, Finding(Reason.UNAVAILABLE, lack)))

    def _part(self, claim: Claim, part: SubmittedPart) -> Part:
        place = (claim.chain_id, claim.rounds, self.context.run, claim.round, claim.node)
        return Part(*place, part.leaves, claim.uri, part.time)

    def settle_unfit(self) -> bool:
        """Judges every job void if the policy is known to be no checkpoint of its run; returns whether it is."""
        refusal = self.context.weights.refusal(self.followed.policy_version, self.manifest_root)
        if refusal is not None:
            for judgement in judge_unfit(self.waiting, refusal):
                self.record(judgement)
        return refusal is not None

    def record(self, judgement: Judgement) -> None:
        """Keeps and logs a judgement."""
        self.progress.judged[judgement.claim.job] = judgement
        claim, findings = judgement.claim, judgement.evidence.findings
        detail = {} if not findings else {"finding": findings[0].detail, "observed": findings[0].observed}
        reason = judgement.reason.name.lower()
        log.info("judged", round=claim.round, job=claim.job, node=claim.node, reason=reason, **detail)

    def with_records(self, history: History, judgements: Sequence[Judgement]) -> list[Judgement]:
        """Returns ``judgements`` with a finding added to each job of an owner whose record reaches the bound."""
        owners = {judgement.claim.node: self.followed.owners[judgement.claim.node] for judgement in judgements}
        found = history.findings(self.record_point, set(owners.values()))
        return with_findings(judgements, {node: found[owner] for node, owner in owners.items() if owner in found})


class Judge(Protocol):
    """Judges rounds in this process (``LocalJudge``) or through background workers (``QueuedJudge``)."""

    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Advances the judging of ``rounds``; returns whether there was anything to do."""

    def all_silent(self, round_: JudgedRound, late: bool) -> bool:
        """Returns whether every missing artifact was asked for and its store does not answer.

        Where ``late``, another artifact of the same node will do: a node that drips one must not delay all votes.
        """

    def denied(self, round_: JudgedRound) -> bool:
        """Returns whether holders have answered without each missing artifact."""

    def sample(self, round_: JudgedRound, job: int, secret: bytes, most: float) -> list[SampledGroup] | None:
        """Returns the rewards of a listed job's groups beside those sampled with this juror's ``secret``.

        None: not yet, since weights or artifact are missing, workers are busy, or it would block for longer than
        ``most`` seconds.
        """

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets every other round."""

    def close(self) -> None:
        """Releases what this judge holds."""


def record_point(followed: FollowedRound, rules: Rules) -> RecordPoint:
    """Returns the point in its run's history at which a round opened, under the ``rules`` of the run."""
    place = followed.run, followed.terms.rules_hash, followed.opened_in
    return RecordPoint(*place, rules.sequential, rules.groups_per_job, rules.samples_per_group)


def settle_missing(judge: Judge, round_: JudgedRound, late: bool) -> bool:
    """Judges missing artifacts as unavailable if the fault is shown not to be here.

    It is shown where others of the round were fetched, or where holders answered without each one that is missing: one
    node's own place says nothing of other nodes' artifacts.

    An appeal is about one artifact. If its jurors abstained where it is missing, a worker could end the appeal
    undecided, and with it its condemnation, by hiding the file; an unavailable vote leaves the condemnation standing.

    Returns whether the round is judged now; if not, the juror abstains.
    """
    fetched = any(judgement.reason is not Reason.UNAVAILABLE for judgement in round_.progress.judged.values())
    elsewhere = round_.followed.appeal or fetched or judge.denied(round_)
    if elsewhere and not round_.progress.impossible and judge.all_silent(round_, late):
        for claim in round_.waiting:
            finding = Finding(Reason.UNAVAILABLE, "no answer within the time there was to judge")
            round_.record(judge_unread(claim, finding))
    return round_.judged
