"""Rounds as a juror sees them: events folded, nothing decided.

PURE. A reorganisation is answered by folding anew: nothing here is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from protocol.chain.events import (
    AppealOpened,
    CheckpointPublished,
    CommitteeDrawn,
    CommitteeRedrawn,
    KeyRotated,
    Log,
    NodeRegistered,
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
from protocol.errors import Rejected
from protocol.wire.assignments import LEAF_BYTES, Leaf, jobs_in, unpack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, reasons_of
from validator.records.record import NamedBundle, SettledRound


@dataclass(frozen=True, slots=True)
class SubmittedLeaf:
    """One job's leaf and the signed words around it; ``claimed_before``: its root stood on chain for another job."""

    leaf: Leaf
    node: int
    signed_beacon: bytes
    uri: str
    claimed_before: bool


@dataclass(frozen=True, slots=True)
class RevealedVote:
    """A vote as it was revealed, and the key that revealed it."""

    vote: Vote
    key: str


@dataclass(slots=True)
class FollowedRound:
    """One trial: of a round, or of one job of it on appeal.

    number     what votes on it go by: the round's, or the appeal's own
    opened     how the round was opened; seeds, prompts and policy follow from this one, on appeal too
    opened_in  the block that did
    beacon     its hash
    terms      the run's, as they stood then
    deadline   end of the present phase, in unix seconds
    barred     validators that get no seat: on appeal, those who sat before
    jurors     those of the present attempt
    votes      revealed, by attempt and juror
    fraud      jobs found fraudulent, as the tally says
    """

    number: int
    opened: RoundOpened
    opened_in: int
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
    votes: dict[tuple[int, int], RevealedVote] = field(default_factory=dict)
    fraud: int = 0
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
    """The rounds in progress, the runs and checkpoints they name, and every artifact root ever claimed.

    ``keep_ended`` keeps the rounds that have ended too. ``settled`` lists the settled rounds in the order they settled.
    """

    def __init__(self, keep_ended: bool = False) -> None:
        self._keep_ended = keep_ended
        self.live: dict[int, FollowedRound] = {}
        self.settled: list[SettledRound] = []
        self.keys: dict[int, str] = {}
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
            case NodeRegistered(node=node, key=key) | KeyRotated(node=node, key=key):
                self.keys[node] = key
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
                    opened.round, opened, log.block_number, log.block_hash, self.runs[opened.run], opened.deadline
                )
            case AppealOpened() as appeal:
                self._appeal(appeal, log.timestamp)
            case RoundSettled(round=number):
                if not self.live[number].appeal:
                    self.settled.append(_settled(self.live[number], log.block_number))
                self._end(number)
            case RoundVoided(round=number):
                self._end(number)
            case Submitted() as submitted:
                self._submit(submitted)
            case event:
                followed = self.live.get(getattr(event, "round", 0))
                if isinstance(event, VoteRevealed) and followed is not None:
                    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
                    followed.votes[event.attempt, event.juror] = RevealedVote(vote, self.keys.get(event.juror, ""))
                if followed is not None:
                    _advance(followed, event, log.timestamp)

    def _end(self, number: int) -> None:
        if not self._keep_ended:
            self.live.pop(number, None)

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
            first.opened_in,
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
        case RoundTallied(fraud=fraud):
            followed.fraud, followed.over = fraud, True
        case CommitteeRedrawn(attempt=attempt, deadline=deadline):
            followed.attempt, followed.jurors, followed.deadline = attempt, (), deadline
            followed.revealing, followed.committed, followed.revealed = False, set(), set()


def _settled(followed: FollowedRound, block: int) -> SettledRound:
    """What a node's record is made from; of the committee's majority, not of what came of it on appeal."""
    said = {juror: one for (attempt, juror), one in followed.votes.items() if attempt == followed.attempt}
    voting = {juror: one for juror, one in said.items() if not one.vote.abstains}
    return SettledRound(
        round=followed.number,
        beacon=followed.beacon,
        run=followed.opened.run,
        rules_hash=followed.terms.rules_hash,
        attempt=followed.attempt,
        settled_in=block,
        bundles=tuple(NamedBundle(juror, one.key, one.vote.evidence_root) for juror, one in sorted(voting.items())),
        nodes={job: followed.leaves[job].node for job in followed.jobs},
        condemned=_condemned(followed, [one.vote for one in voting.values()]),
    )


def _condemned(followed: FollowedRound, votes: Sequence[Vote]) -> frozenset[int]:
    """The nodes of jobs that a majority of the seats found fraudulent by the node's record."""
    by_record = Counter(job for vote in votes for job, reason in _reasons(vote, followed) if reason is Reason.SEQUENCE)
    majority = (len(followed.jurors) + 1) // 2
    jobs = [job for job, count in by_record.items() if count >= majority and followed.fraud >> job & 1]
    return frozenset(followed.leaves[job].node for job in jobs)


def _reasons(vote: Vote, followed: FollowedRound) -> Iterable[tuple[int, Reason]]:
    try:
        return reasons_of(vote, followed.submitted or 0).items()
    except Rejected:  # a code that nobody knows
        return ()
