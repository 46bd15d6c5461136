"""Rounds as a juror follows them: the shared fold, and what jurors need beyond it.

PURE. A reorganisation is handled by folding the other chain's events from the beginning.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from protocol.chain import events
from protocol.chain.round_changes import advance, appeal_round, changed_round, opening, submitted_leaves
from protocol.chain.round_state import RoundState
from protocol.chain.structs import RunTerms, State, Verdict
from protocol.errors import Rejected
from protocol.wire.assignments import jobs_in, nodes_of
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, reasons_of
from validator.records.record import NamedBundle, SettledRound

REPLAYABLE_ROUNDS = 1024
"""Settled rounds whose claims are kept in memory, so that their jobs can be replayed."""


@dataclass(frozen=True, slots=True)
class SubmittedPart:
    """Packed leaves of one submission, and the time of its block."""

    leaves: bytes
    time: int


@dataclass(slots=True, kw_only=True)
class FollowedRound(RoundState):
    """A round to judge, or one job of it on appeal.

    Args:
        terms: the run's terms when the round opened.
        opened_in: number of the block that opened the round; of the round appealed against, for an appeal.
        excluded: validators that get no seat: for an appeal, the jurors of the round appealed against.
        parts: the submission that each job came in.
        copied: jobs whose artifact root was already on chain for another job.
        keys: session keys that revealed votes, by (attempt, juror).
        owners: owner of every registered node.
        tallied_fraud: jobs that the committee judged fraudulent, whatever an appeal decided later.
        draws: seed of each attempt's draw.
    """

    terms: RunTerms
    opened_in: int
    excluded: frozenset[int] = frozenset()
    parts: dict[int, SubmittedPart] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)
    keys: dict[tuple[int, int], str] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)
    tallied_fraud: int = 0
    draws: dict[int, bytes] = field(default_factory=dict)

    @property
    def judged_round(self) -> int:
        """The round whose jobs are judged: this one, or the one appealed against."""
        return self.parent or self.number

    @property
    def appeal(self) -> bool:
        """True for the round that tries an appeal."""
        return bool(self.parent)

    @property
    def submitted_jobs(self) -> tuple[int, ...]:
        """Jobs to judge, ascending; final once work has ended."""
        return jobs_in(self.submitted)

    @property
    def over(self) -> bool:
        """True once votes no longer count."""
        return self.state >= State.TALLIED

    @property
    def committed(self) -> set[int]:
        """Jurors of the present attempt who have committed to a vote."""
        return {juror for juror in self.jurors if self.seats[self.attempt, juror].committed}

    @property
    def revealed(self) -> set[int]:
        """Jurors of the present attempt who have revealed their vote."""
        return {juror for juror in self.jurors if self.seats[self.attempt, juror].revealed}

    def certain(self, node: int) -> bool:
        """Returns whether ``node`` gets a seat if it is eligible, because there are seats for all."""
        seats = self.terms.appeal_seats if self.appeal else self.terms.committee
        return node not in self.excluded and seats >= self.slot_count - len(self.excluded)


class Rounds:
    """The rounds that have not ended (or all of them with ``keep_ended``), and the runs and checkpoints they name.

    ``settled`` lists the settled rounds, which make up the records of owners, in the order they settled; ``replayable``
    has the newest of them whole.
    """

    def __init__(self, keep_ended: bool = False) -> None:
        self._keep_ended = keep_ended
        self.live: dict[int, FollowedRound] = {}
        self.settled: list[SettledRound] = []
        self.replayable: dict[int, FollowedRound] = {}
        self.keys: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self.runs: dict[int, RunTerms] = {}
        self.uris: dict[int, str] = {}
        self._joined: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._closed: set[int] = set()
        self._contests: dict[int, events.SlotContested] = {}
        self._announced: dict[int, events.TermsAnnounced] = {}
        self.manifest_roots: dict[tuple[int, int], bytes] = {}
        self._claims: dict[bytes, tuple[int, int]] = {}

    def fold(self, logs: Iterable[events.Log]) -> None:
        """Folds events in chain order."""
        for log in logs:
            self._fold_parties(log)
            self._fold_round(log)

    def served_by(self, node: int) -> dict[int, str]:
        """Returns the runs that ``node`` serves or still judges, and where each says that its coordinator is."""
        judged = {one.run for one in self.live.values() if node in one.jurors}
        return {run: self.uris[run] for run in sorted(self._joined[node].keys() | judged)}

    def joined(self, node: int) -> Mapping[int, int]:
        """Returns the runs that ``node`` has joined, and the block in which it last did."""
        return self._joined[node]

    def owner(self, node: int) -> str:
        """Returns the address of a node's owner."""
        return self._owners[node]

    def outlived(self, node: int) -> list[int]:
        """Returns the closed runs that ``node`` still serves, all of whose rounds have ended."""
        going_on = {one.run for one in self.live.values()}
        return sorted((self._joined[node].keys() & self._closed) - going_on)

    def displaces_from(self, node: int) -> float:
        """Returns when ``node`` may displace the holder of the slot that it waits for; infinity if there is none."""
        own = (contest.until for contest in self._contests.values() if contest.newcomer == node)
        return next(own, math.inf)

    def contest_against(self, node: int) -> events.SlotContested | None:
        """Returns the contest of the slot that ``node`` holds; None if nobody waits for it."""
        return next((contest for contest in self._contests.values() if contest.holder == node), None)

    def _fold_parties(self, log: events.Log) -> None:
        """Takes in the keys of nodes, and the terms and checkpoints of runs."""
        match log.event:
            case events.NodeRegistered(node=node, owner=owner, key=key):
                self.keys[node], self._owners[node] = key, owner
            case events.KeyRotated(node=node, key=key):
                self.keys[node] = key
            case events.RunOpened(run=run, terms=terms, manifest_root=root, uri=uri):
                self.runs[run], self.uris[run] = terms, uri
                self.manifest_roots[run, 0] = root
            case events.SlotContested() as contest:
                self._contests[contest.slot] = contest
            case events.SlotKept(slot=slot) | events.SlotPassed(slot=slot):
                self._contests.pop(slot, None)
            case events.RunClosed(run=run):
                self._closed.add(run)
            case events.NodeJoined(run=run, node=node):
                self._joined[node][run] = log.block_number
            case events.NodeLeft(run=run, node=node):
                self._joined[node].pop(run, None)
            case events.CheckpointPublished(run=run, version=version, manifest_root=root):
                self.manifest_roots[run, version] = root
            case events.TermsAnnounced() as announced:
                self._take_effect(announced.run, log.timestamp)
                self._announced[announced.run] = announced
            case events.RoundOpened(run=run):
                self._take_effect(run, log.timestamp)

    def _take_effect(self, run: int, timestamp: int) -> None:
        announced = self._announced.get(run)
        if announced is not None and announced.effective_at <= timestamp:
            self.runs[run] = announced.terms

    def _fold_round(self, log: events.Log) -> None:
        event = log.event
        if isinstance(event, events.RoundOpened):
            self.live[event.round] = FollowedRound(
                event.round,
                **opening(log, event),
                terms=self.runs[event.run],
                opened_in=log.block_number,
                owners=self._owners,
            )
            return
        if isinstance(event, events.AppealOpened):
            self._open_appeal(log, event)
        copied = self._copied(event) if isinstance(event, events.Submitted) else ()
        followed = self.live.get(changed_round(event) or 0)
        if followed is None:
            return
        followed.apply(advance(followed, log))
        followed.copied.update(copied)
        if isinstance(event, events.Submitted):
            part = SubmittedPart(event.leaves, log.timestamp)
            followed.parts.update({leaf.job: part for leaf in submitted_leaves(event.leaves)})
        if isinstance(event, events.VoteRevealed):
            followed.keys[event.attempt, event.juror] = self.keys.get(event.juror, "")
        if isinstance(event, events.CommitteeDrawn):
            followed.draws[event.attempt] = event.seed
        if isinstance(event, events.RoundTallied):
            followed.tallied_fraud = event.fraud & ~event.accepted
        if isinstance(event, events.RoundSettled) and not followed.appeal:
            self.settled.append(_settled(followed, log.block_number))
            self.replayable[event.round] = followed
            if len(self.replayable) > REPLAYABLE_ROUNDS:
                del self.replayable[next(iter(self.replayable))]
        if isinstance(event, events.RoundSettled | events.RoundVoided) and not self._keep_ended:
            del self.live[event.round]

    def _open_appeal(self, log: events.Log, event: events.AppealOpened) -> None:
        first = self.live[event.round]
        self.live[event.appeal] = FollowedRound(
            event.appeal,
            **appeal_round(first, event),
            closed_at=log.timestamp,
            leaves={event.job: first.leaves[event.job]},
            terms=first.terms,
            opened_in=first.opened_in,
            excluded=frozenset(first.jurors),
            parts={event.job: first.parts[event.job]},
            copied=first.copied & {event.job},
            owners=self._owners,
        )

    def _copied(self, event: events.Submitted) -> list[int]:
        """Returns the jobs whose root was claimed before for another job, and remembers the roots."""
        places = {leaf.job: (leaf.root, (event.round, leaf.job)) for leaf in submitted_leaves(event.leaves)}
        return [job for job, (root, place) in places.items() if self._claims.setdefault(root, place) != place]


def _settled(followed: FollowedRound, block: int) -> SettledRound:
    """Returns the entry for nodes' records, by the committee's majority whatever an appeal decided later."""
    seats = {juror: followed.seats[followed.attempt, juror].vote for juror in sorted(followed.jurors)}
    votes = {juror: vote for juror, vote in seats.items() if vote is not None and not vote.abstains}
    return SettledRound(
        round=followed.number,
        beacon=followed.beacon,
        run=followed.run,
        rules_hash=followed.terms.rules_hash,
        attempt=followed.attempt,
        settled_in=block,
        bundles=tuple(
            NamedBundle(juror, followed.keys[followed.attempt, juror], vote.evidence_root)
            for juror, vote in votes.items()
        ),
        nodes={job: followed.leaves[job].node for job in followed.submitted_jobs},
        owners={job: _owner(followed, job) for job in followed.submitted_jobs},
        condemned=_condemned(followed, list(votes.values())),
        version=followed.policy_version,
        listed=tuple(followed.owners[node] for node in nodes_of(followed.assignments)),
        accepted=frozenset(job for job in followed.submitted_jobs if followed.verdict(job) is Verdict.ACCEPTED),
    )


def _condemned(followed: FollowedRound, votes: Sequence[Vote]) -> frozenset[str]:
    """Returns the owners of jobs that a majority of the seats judged fraudulent because of their record."""
    by_record = Counter(job for vote in votes for job, reason in _reasons(vote, followed) if reason is Reason.SEQUENCE)
    majority = (len(followed.jurors) + 1) // 2
    jobs = [job for job, count in by_record.items() if count >= majority and followed.tallied_fraud >> job & 1]
    return frozenset(_owner(followed, job) for job in jobs)


def _owner(followed: FollowedRound, job: int) -> str:
    return followed.owners[followed.leaves[job].node]


def _reasons(vote: Vote, followed: FollowedRound) -> Iterable[tuple[int, Reason]]:
    try:
        return reasons_of(vote, followed.submitted).items()
    except Rejected:  # unknown reason code
        return ()
