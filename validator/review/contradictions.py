"""Contradictions within a bundle, or between bundle and chain, found without artifacts or weights. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import Rejected
from protocol.wire.evidence import Evidence, JobEvidence, SignedEvidence
from protocol.wire.rules import Rules
from validator.judging.verdict import reason_of, vote_of
from validator.queue.judged_round import JudgedRound


def contradictions(signed: SignedEvidence, round_: JudgedRound, key: str) -> Iterator[str]:
    """Yields a sentence per contradiction; ``key`` is the juror's key, used if it revealed no vote."""
    evidence = signed.evidence
    yield from _place(evidence, round_)
    yield from _vote(signed, round_, key)
    yield from _jobs(evidence, round_)
    yield from _fingerprints(evidence)
    for job in evidence.jobs:
        yield from within(job, round_.context.rules)


def _place(evidence: Evidence, round_: JudgedRound) -> Iterator[str]:
    followed, context = round_.followed, round_.context
    told: dict[str, tuple[object, object]] = {
        "chain": (evidence.chain_id, context.chain_id),
        "contract": (evidence.rounds.lower(), context.rounds_address.lower()),
        "run": (evidence.run, followed.run),
        "version": (evidence.policy_version, followed.policy_version),
        "manifest root": (evidence.manifest_root.hex(), round_.manifest_root.hex()),
        "rules hash": (evidence.rules_hash.hex(), context.rules_hash.hex()),
        "thresholds": (evidence.thresholds, context.rules.thresholds.bounds),
    }
    for name, (said, stands) in told.items():
        if said != stands:
            yield f"the bundle's {name} is {said}, the round's is {stands}"


def _vote(signed: SignedEvidence, round_: JudgedRound, key: str) -> Iterator[str]:
    evidence = signed.evidence
    seat_key = evidence.attempt, evidence.juror
    seat = round_.followed.seats.get(seat_key)
    revealed = None if seat is None else seat.vote
    try:
        signed.verify(round_.followed.keys.get(seat_key, key))
    except Rejected as error:
        yield str(error)
    place = f"juror {evidence.juror} in attempt {evidence.attempt} at round {evidence.round}"
    if revealed is None:
        yield f"no vote was revealed by {place}"
        return
    if revealed.evidence_root != evidence.root:
        yield f"the vote of {place} names 0x{revealed.evidence_root.hex()}, the bundle is 0x{evidence.root.hex()}"
        return
    said = vote_of({job.job: job.reason for job in evidence.jobs}, evidence.root)
    if said != revealed:
        yield f"the vote of {place} does not follow from its bundle"


def _jobs(evidence: Evidence, round_: JudgedRound) -> Iterator[str]:
    listed, submitted = [job.job for job in evidence.jobs], list(round_.followed.submitted_jobs)
    if listed != submitted:
        yield f"the bundle is about jobs {listed}, submitted were {submitted}"
    for job in evidence.jobs:
        if job.job not in round_.followed.leaves:
            continue
        claim = round_.claim(job.job)
        told: dict[str, tuple[object, object]] = {
            "node": (job.node, claim.node),
            "units": (job.units_claimed, claim.units),
            "root": (job.root.hex(), claim.root.hex()),
        }
        for name, (said, stands) in told.items():
            if said != stands:
                yield f"job {job.job}: the bundle's {name} is {said}, the chain's is {stands}"


def _fingerprints(evidence: Evidence) -> Iterator[str]:
    """Holds the fingerprints against the jobs that the juror says it measured."""
    measured = {job.job: job.measurements for job in evidence.jobs if job.measurements is not None}
    shown = [fingerprint.job for fingerprint in evidence.fingerprints]
    if shown != list(measured):
        yield f"fingerprints of a prefill are of jobs {shown}, measured were {list(measured)}"
    for fingerprint in evidence.fingerprints:
        columns = measured.get(fingerprint.job)
        if columns is not None and len(fingerprint.gaps_N) != len(columns.tokens_N):
            yield (
                f"job {fingerprint.job}: the fingerprint is of {len(fingerprint.gaps_N)} rollouts, "
                f"{len(columns.tokens_N)} were measured"
            )


def within(job: JobEvidence, rules: Rules) -> Iterator[str]:
    """Yields a sentence per contradiction within one job of a bundle, and with the rules."""
    follows = reason_of(job.findings)
    if follows is not job.reason:
        yield f"job {job.job}: the verdict is {job.reason.name.lower()}, its findings come to {follows.name.lower()}"
    measured = job.measurements
    if measured is None:
        if not job.reason:
            yield f"job {job.job}: accepted without measurements"
        return
    if len(measured.tokens_N) != rules.rollouts_per_job:
        yield f"job {job.job}: {len(measured.tokens_N)} rollouts measured, the rules say {rules.rollouts_per_job}"
    if bool((measured.up_N > measured.flips_N).any()) or bool((measured.flips_N > measured.tokens_N).any()):
        yield f"job {job.job}: more tokens off the seeded choice than there are"
