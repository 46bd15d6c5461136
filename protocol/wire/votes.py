"""A juror's vote on a round, and the salted commitment to it.

    commitment = keccak256(abi.encode(chainId, Rounds, round, attempt, juror,
                                      accept, fraud, keccak256(reasons), evidenceRoot, salt))

A job in both bitmaps is voted unavailable, in neither void. ``reasons`` holds one byte for each submitted job that is
not voted accepted, ascending by job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eth_abi import encode
from eth_utils import keccak

from protocol.errors import Rejected
from protocol.wire.assignments import bitmap_of, jobs_in
from protocol.wire.reasons import Reason

ABSTENTION = bytes([Reason.ABSTAIN])


@dataclass(frozen=True, slots=True)
class Vote:
    """Bitmaps of the jobs judged accepted and fraudulent; submitted jobs in both are unavailable, in neither void."""

    accept: int
    fraud: int
    reasons: bytes
    evidence_root: bytes

    @property
    def abstains(self) -> bool:
        """True if the juror could not judge the round at all."""
        return self.accept == 0 and self.fraud == 0 and self.reasons == ABSTENTION


def vote_on(judgements: Mapping[int, Reason], evidence_root: bytes) -> Vote:
    """Returns the vote for ``judgements``, which hold a reason for each submitted job."""
    accept = bitmap_of(job for job, reason in judgements.items() if reason is Reason.ACCEPTED or reason.unavailable)
    fraud = bitmap_of(job for job, reason in judgements.items() if reason.fraud or reason.unavailable)
    reasons = bytes(judgements[job] for job in sorted(judgements) if judgements[job] is not Reason.ACCEPTED)
    return Vote(accept, fraud, reasons, evidence_root)


def abstention() -> Vote:
    """Returns the vote of a juror that could not judge: no fee, no penalty, outside the quorum."""
    return Vote(0, 0, ABSTENTION, bytes(32))


def reasons_of(vote: Vote, submitted: int) -> dict[int, Reason]:
    """Returns a vote's reason for each job in the ``submitted`` bitmap.

    Raises:
        Rejected: The number of reasons does not match the bitmaps, or a code is unknown.
    """
    if vote.abstains:
        return dict.fromkeys(jobs_in(submitted), Reason.ABSTAIN)
    not_accepted = jobs_in(submitted & ~(vote.accept & ~vote.fraud))
    if len(not_accepted) != len(vote.reasons):
        raise Rejected(f"invalid vote: {len(vote.reasons)} reasons for {len(not_accepted)} jobs that were not accepted")
    try:
        given = {job: Reason(code) for job, code in zip(not_accepted, vote.reasons, strict=True)}
    except ValueError as error:
        raise Rejected(f"invalid reason code: {error}") from error
    return {job: given.get(job, Reason.ACCEPTED) for job in jobs_in(submitted)}


def most_given(given: Sequence[tuple[Reason, bytes]]) -> tuple[Reason | None, tuple[bytes, ...]]:
    """Returns the reason that most votes give for a job, None of none, and the evidence roots of those votes.

    Args:
        given: by vote its reason for the job, and its evidence root.
    """
    if not given:
        return None, ()
    most = Counter(reason for reason, _ in given).most_common(1)[0][0]
    return most, tuple(root for reason, root in given if reason is most)


def commitment(chain_id: int, rounds: str, round_: int, attempt: int, juror: int, vote: Vote, salt: bytes) -> bytes:
    """Returns the 32-byte commitment to ``vote`` under ``salt`` (32 bytes)."""
    types = ["uint256", "address", "uint256", "uint8", "uint32", "uint256", "uint256", "bytes32", "bytes32", "bytes32"]
    said = (vote.accept, vote.fraud, keccak(vote.reasons), vote.evidence_root, salt)
    return keccak(encode(types, (chain_id, rounds, round_, attempt, juror, *said)))
