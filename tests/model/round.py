"""A round as people speak of it: jobs, seats and verdicts, not words and bitmaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from protocol.chain.structs import Appeal, RunTerms, SettledLeaves, State, Verdict
from tests.model.transaction import NO_HASH

LISTING_BYTES = 5
LEAF_BYTES = 41


class Leaf(NamedTuple):
    job: int
    units: int


@dataclass(slots=True)
class Vote:
    """One verdict for each job submitted; an abstention has none."""

    verdicts: dict[int, Verdict]

    @property
    def abstained(self) -> bool:
        return not self.verdicts


@dataclass(slots=True)
class Seat:
    juror: int
    commitment: bytes | None = None
    vote: Vote | None = None

    @property
    def votes(self) -> bool:
        """Counts towards the quorum."""
        return self.vote is not None and not self.vote.abstained


@dataclass(slots=True)
class Round:
    """A round of a run, or (``appeal`` set) the trial of one job of another."""

    number: int
    run: int
    terms: RunTerms
    policy_version: int
    assignments: bytes
    state: State
    opened_at: int
    deadline: int
    slot_count: int
    eligible: set[int]
    reserved: int
    open_block: int = 0
    close_block: int = 0
    attempt: int = 0
    revealing: bool = False
    freed: bool = False
    submitted: set[int] = field(default_factory=set)
    batches: list[list[SettledLeaves] | None] = field(default_factory=list)
    """A batch that was settled is None."""
    seats: list[Seat] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Of submitted jobs, once tallied."""
    appealed: dict[int, int] = field(default_factory=dict)
    """Number of the trial of each job appealed."""
    pending: int = 0
    consumed: set[int] = field(default_factory=set)
    appeal: Appeal | None = None

    @property
    def assignees(self) -> list[int]:
        """The node that owes each job."""
        return [node for node, jobs in listings(self.assignments) for _ in range(jobs)]

    @property
    def committee(self) -> int:
        return self.terms.committee

    @property
    def threshold(self) -> int:
        return (self.committee + 1) // 2

    @property
    def assignments_hash(self) -> bytes:
        return NO_HASH if self.ended or self.appeal else keccak(self.assignments)

    @property
    def ended(self) -> bool:
        """Whether the contracts have forgotten what only a round that goes on needs."""
        return self.freed or self.state == State.SETTLED or (self.appeal is not None and self.state == State.VOID)

    @property
    def voted(self) -> bool:
        """Whether all who committed have revealed, and nobody can commit any more."""
        return self.revealing and all(seat.vote for seat in self.seats if seat.commitment is not None)

    @property
    def unsettled(self) -> int:
        return sum(batch is not None for batch in self.batches)

    def jobs_with(self, *verdicts: Verdict) -> set[int]:
        return {job for job, found in self.verdicts.items() if found in verdicts}

    def digest(self, batch: int) -> bytes:
        """What stands on chain of a batch: zero where there is none, or it was settled."""
        kept = self.batches[batch] if batch < len(self.batches) and not self.ended else None
        return digest_of(kept) if kept is not None else NO_HASH


def listings(packed: bytes) -> list[tuple[int, int]]:
    """(node, jobs) in order; whole listings only."""
    whole = range(0, len(packed) - LISTING_BYTES + 1, LISTING_BYTES)
    return [(int.from_bytes(packed[at : at + 4], "big"), packed[at + 4] + 1) for at in whole]


def leaves_in(packed: bytes) -> list[Leaf]:
    """All leaves, or none where the length is not whole."""
    if len(packed) % LEAF_BYTES:
        return []
    starts = range(0, len(packed), LEAF_BYTES)
    return [Leaf(packed[at], int.from_bytes(packed[at + 1 : at + 9], "big")) for at in starts]


def digest_of(batch: Sequence[SettledLeaves]) -> bytes:
    heads = [part.node.to_bytes(4, "big") + bytes([len(part.leaves) // LEAF_BYTES]) for part in batch]
    return keccak(b"".join(head + part.leaves for head, part in zip(heads, batch, strict=True)))


def bitmap(bits: set[int]) -> int:
    return sum(1 << bit for bit in bits)


def bits_in(bitmap: int) -> set[int]:
    return {bit for bit in range(256) if bitmap >> bit & 1}


def committee_slots(seed: bytes, attempt: int, slot_count: int, eligible: set[int], seats: int) -> list[int]:
    """The draw: hashed tries, then slots in order; every eligible slot at most once."""
    drawn: list[int] = []
    for slot in _tries(seed, attempt, slot_count):
        if slot in eligible and slot not in drawn:
            drawn.append(slot)
        if len(drawn) == seats:
            return drawn
    raise AssertionError("tries never end")


def _tries(seed: bytes, attempt: int, slot_count: int) -> Iterator[int]:
    for i in range(4 * slot_count):
        hashed = keccak(encode(["bytes32", "uint8", "uint256"], [seed, attempt, i]))
        yield int.from_bytes(hashed, "big") % slot_count
    for i in count(4 * slot_count):
        yield i % slot_count
