"""Rounds as a juror sees them: events folded, nothing decided.

PURE. A reorganisation is answered by folding anew: nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.chain.events import (
    AppealOpened,
    CheckpointPublished,
    CommitteeDrawn,
    CommitteeRedrawn,
    Log,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    RunOpened,
    Submitted,
    TermsAnnounced,
    VoteCommitted,
    VoteRevealed,
)
from protocol.chain.structs import RunTerms
from protocol.wire.assignments import LEAF_BYTES, Leaf, jobs_in, unpack_leaves


@dataclass(frozen=True, slots=True)
class SubmittedLeaf:
    """One job's leaf and the signed words around it; ``claimed_before``: its root stood on chain for another job."""

    leaf: Leaf
    node: int
    signed_beacon: bytes
    uri: str
    claimed_before: bool


@dataclass(slots=True)
class FollowedRound:
    """One trial: of a round, or of one job of it on appeal.

    number    what votes on it go by: the round's, or the appeal's own
    opened    how the round was opened; seeds, prompts and policy follow from this one, on appeal too
    beacon    hash of the block that opened it
    terms     the run's, as they stood then
    deadline  end of the present phase, in unix seconds
    barred    validators that get no seat: on appeal, those who sat before
    jurors    those of the present attempt
    """

    number: int
    opened: RoundOpened
    beacon: bytes
    terms: RunTerms
    deadline: int
    barred: frozenset[int] = frozenset()
    leaves: dict[int, SubmittedLeaf] = field(default_factory=dict)
    submitted: int | None = None
    closed_at: int = 0
    attempt: int = 0
    jurors: tuple[int, ...] = ()
    revealing: bool = False
    committed: set[int] = field(default_factory=set)
    revealed: set[int] = field(default_factory=set)
    over: bool = False

    @property
    def jobs(self) -> tuple[int, ...]:
        """Jobs to judge, ascending: all that were submitted, known for certain once the round is closed."""
        return tuple(sorted(self.leaves)) if self.submitted is None else jobs_in(self.submitted)

    @property
    def appeal(self) -> bool:
        """Whether this is the trial of an appeal."""
        return self.number != self.opened.round

    def certain(self, node: int) -> bool:
        """Whether ``node`` gets a seat if it can be drawn at all, there being as many seats as validators."""
        seats = self.terms.appeal_seats if self.appeal else self.terms.committee
        return node not in self.barred and seats >= self.opened.slot_count - len(self.barred)


class Rounds:
    """Every round that has not ended (all of them where ``keep_ended``), the runs and checkpoints they name, and every
    artifact root ever claimed."""

    def __init__(self, keep_ended: bool = False) -> None:
        self._keep_ended = keep_ended
        self.live: dict[int, FollowedRound] = {}
        self.runs: dict[int, RunTerms] = {}
        self._announced: dict[int, TermsAnnounced] = {}
        self.manifest_roots: dict[tuple[int, int], bytes] = {}
        self._claims: dict[bytes, tuple[int, int]] = {}

    def fold(self, logs: Iterable[Log]) -> None:
        """Takes in events, in chain order."""
        for log in logs:
            self._fold_one(log)

    def _fold_one(self, log: Log) -> None:
        match log.event:
            case RunOpened(run=run, terms=terms, manifest_root=root):
                self.runs[run] = terms
                self.manifest_roots[run, 0] = root
            case CheckpointPublished(run=run, version=version, manifest_root=root):
                self.manifest_roots[run, version] = root
            case TermsAnnounced() as announced:
                self._take_effect(announced.run, log.timestamp)
                self._announced[announced.run] = announced
            case RoundOpened() as opened:
                self._take_effect(opened.run, log.timestamp)
                self.live[opened.round] = FollowedRound(
                    opened.round, opened, log.block_hash, self.runs[opened.run], opened.deadline
                )
            case AppealOpened() as appeal:
                self._appeal(appeal, log.timestamp)
            case RoundSettled(round=number) | RoundVoided(round=number) if not self._keep_ended:
                self.live.pop(number, None)
            case Submitted() as submitted:
                self._submit(submitted)
            case event:
                followed = self.live.get(getattr(event, "round", 0))
                if followed is not None:
                    _advance(followed, event, log.timestamp)

    def _take_effect(self, run: int, timestamp: int) -> None:
        announced = self._announced.get(run)
        if announced is not None and announced.effective_at <= timestamp:
            self.runs[run] = announced.terms

    def _appeal(self, appeal: AppealOpened, timestamp: int) -> None:
        """One job of a round still followed, as a trial under a number of its own."""
        first = self.live[appeal.round]
        self.live[appeal.appeal] = FollowedRound(
            appeal.appeal,
            first.opened,
            first.beacon,
            first.terms,
            appeal.deadline,
            frozenset(first.jurors),
            leaves={appeal.job: first.leaves[appeal.job]},
            submitted=1 << appeal.job,
            closed_at=timestamp,
        )

    def _submit(self, submitted: Submitted) -> None:
        followed = self.live.get(submitted.round)
        for start in range(0, len(submitted.leaves), LEAF_BYTES):
            # One at a time: the contract takes leaves in any order.
            (leaf,) = unpack_leaves(submitted.leaves[start : start + LEAF_BYTES])
            place = (submitted.round, leaf.job)
            before = self._claims.setdefault(leaf.root, place) != place
            if followed is not None:
                claimed = SubmittedLeaf(leaf, submitted.node, submitted.beacon, submitted.uri, before)
                followed.leaves[leaf.job] = claimed


def _advance(followed: FollowedRound, event: object, timestamp: int) -> None:
    match event:
        case RoundClosed(submitted=submitted, deadline=deadline):
            followed.submitted, followed.deadline, followed.closed_at = submitted, deadline, timestamp
        case CommitteeDrawn(attempt=attempt, jurors=jurors, deadline=deadline):
            followed.attempt, followed.jurors, followed.deadline = attempt, jurors, deadline
            followed.revealing, followed.committed, followed.revealed = False, set(), set()
        case VoteCommitted(juror=juror):
            followed.committed.add(juror)
        case RevealStarted(deadline=deadline):
            followed.revealing, followed.deadline = True, deadline
        case VoteRevealed(juror=juror):
            followed.revealed.add(juror)
        case RoundTallied():
            followed.over = True
        case CommitteeRedrawn(attempt=attempt, deadline=deadline):
            followed.attempt, followed.jurors, followed.deadline = attempt, (), deadline
            followed.revealing, followed.committed, followed.revealed = False, set(), set()
