"""Events to notices. PURE: what is followed is kept in ``Followed``, which a reorganisation replaces by an earlier one.

A key is made of content only, never of a block, a time or a log's index, so that an event which a reorganisation moves
to another block has the key it had. Where the same may happen twice, its occurrences are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from protocol.amounts import tokens
from protocol.chain import events
from protocol.chain.events import Log
from protocol.chain.structs import Cause, Verdict, jobs_by_verdict
from protocol.node.notices.notice import Notice, NoticeKind
from protocol.times import clock
from protocol.wire.assignments import bitmap_of, jobs_in, jobs_of, unpack_assignments, unpack_leaves

_WHY = {Cause.FRAUD: "fraud", Cause.ABSENCE: "a missing vote", Cause.OVERTURNED: "a vote that an appeal overturned"}


@dataclass(slots=True)
class WatchedRound:
    """A round with jobs of followed nodes: by node, the jobs listed and those handed in. Bitmaps.

    ``disputable`` are by node the jobs whose verdict its owner can appeal until ``deadline``.
    """

    run: int
    listed: dict[int, int]
    submitted: dict[int, int] = field(default_factory=dict)
    disputable: dict[int, int] = field(default_factory=dict)
    deadline: int = 0


@dataclass(slots=True)
class Followed:
    """Nodes, runs and rounds followed, as the events so far have left them. JSON can hold it.

    Args:
        owners: owners of whom every node and every run is followed.
        nodes: owner by node.
        named: runs followed by name, or because an owner opened them.
        joined: by run, the followed nodes that have joined it.
        rounds: rounds in flight with jobs of followed nodes.
        last_reserved: by run, what its last round reserved.
        seen: occurrences of contents that may come again.
        asked: what the settings named when nodes and runs were last looked up.
    """

    owners: set[str] = field(default_factory=set)
    nodes: dict[int, str] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    joined: dict[int, set[int]] = field(default_factory=dict)
    rounds: dict[int, WatchedRound] = field(default_factory=dict)
    last_reserved: dict[int, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    asked: str = ""

    @property
    def runs(self) -> set[int]:
        """Every run followed."""
        return self.named | {run for run, nodes in self.joined.items() if nodes}

    def counted(self, content: str) -> str:
        """Returns the key of the next occurrence of ``content``."""
        self.seen[content] = self.seen.get(content, 0) + 1
        return f"{content}/{self.seen[content]}"

    def drop_others(self) -> None:
        """Drops from rounds in flight the nodes that are not followed any more."""
        for number, round_ in list(self.rounds.items()):
            for jobs in (round_.listed, round_.submitted, round_.disputable):
                for node in jobs.keys() - self.nodes.keys():
                    del jobs[node]
            if not round_.listed:
                del self.rounds[number]


def take(followed: Followed, log: Log) -> list[Notice]:
    """Takes one event in; returns the notices that it gives."""
    event = log.event
    _take_parties(followed, event)
    return [*_of_node(followed, event), *_of_run(followed, event), *_of_round(followed, event)]


def _take_parties(followed: Followed, event: events.Event) -> None:
    match event:
        case events.NodeRegistered() if event.owner in followed.owners or event.node in followed.nodes:
            followed.nodes[event.node] = event.owner
        case events.NodeJoined() if event.node in followed.nodes:
            followed.joined.setdefault(event.run, set()).add(event.node)
        case events.NodeLeft() if event.node in followed.nodes:
            followed.joined.get(event.run, set()).discard(event.node)
        case events.RunOpened() if event.requester in followed.owners:
            followed.named.add(event.run)


def _of_node(followed: Followed, event: events.Event) -> Iterator[Notice]:
    match event:
        case events.NodeSlashed() if event.node in followed.nodes:
            key = followed.counted(f"slashed/{event.round}/{event.node}/{event.cause.name}/{event.amount}")
            kind = NoticeKind.ABSENCE if event.cause is Cause.ABSENCE else NoticeKind.SLASHED
            text = f"Node {event.node} was slashed for {_WHY[event.cause]} in round {event.round}: {_left(event)}."
            yield Notice(kind, key, text)
        case events.NodeStruck() if event.node in followed.nodes:
            key = followed.counted(f"strike/{event.round}/{event.node}")
            text = f"Node {event.node} got strike {event.strikes} of run {event.run} in round {event.round}."
            yield Notice(NoticeKind.ABSENCE, key, text)


def _left(event: events.NodeSlashed) -> str:
    return f"{tokens(event.amount)} was taken, {tokens(event.bond)} of its bond is left"


def _of_run(followed: Followed, event: events.Event) -> Iterator[Notice]:
    match event:
        case events.TermsAnnounced() if event.run in followed.runs:
            digest = sha256(repr(event.terms).encode()).hexdigest()[:16]
            text = (
                f"Run {event.run} announced new terms, in effect from {clock(event.effective_at)}: "
                f"{tokens(event.terms.price_per_unit)} a unit, rules 0x{event.terms.rules_hash.hex()}. "
                f"Look at them with: assize run show {event.run}; nodes must join again at new rules."
            )
            yield Notice(NoticeKind.TERMS, followed.counted(f"terms/{event.run}/{digest}"), text)
        case events.CheckpointPublished() if event.run in followed.runs:
            key = f"version/{event.run}/{event.version}/{event.manifest_root.hex()}"
            yield Notice(NoticeKind.VERSION, key, f"Run {event.run} published version {event.version}.")


def _of_round(followed: Followed, event: events.Event) -> Iterator[Notice]:
    if isinstance(event, events.RoundOpened):
        _open(followed, event)
        return
    round_ = followed.rounds.get(getattr(event, "round", 0))
    if round_ is None:
        return
    match event:
        case events.Submitted() if event.node in round_.listed:
            jobs = bitmap_of(leaf.job for leaf in unpack_leaves(event.leaves))
            round_.submitted[event.node] = round_.submitted.get(event.node, 0) | jobs
        case events.RoundClosed():
            yield from _missing(event, round_)
        case events.RoundTallied():
            _note_disputable(round_, event)
        case events.AppealOpened() if event.node in round_.disputable:
            round_.disputable[event.node] &= ~(1 << event.job)
        case events.SubmissionSettled() if event.node in round_.listed:
            key = f"void/{event.round}/{event.node}/{event.batch}"
            yield from _unpaid(event, key, event.void_jobs, event.accepted & event.fraud)
        case events.AppealedJobSettled(verdict=Verdict.VOID | Verdict.UNAVAILABLE) if event.node in round_.listed:
            word = event.verdict.name.lower()
            text = f"Job {event.job} of node {event.node} in round {event.round} is {word} on appeal."
            yield Notice(NoticeKind.VOID, f"void/{event.round}/{event.node}/appeal-{event.job}", text)
        case events.RoundVoided():
            for node, jobs in round_.submitted.items():
                yield from _unpaid(event, f"void/{event.round}/{node}/round", jobs, 0, node)
    if isinstance(event, events.RoundSettled | events.RoundVoided):
        del followed.rounds[event.round]


def _open(followed: Followed, event: events.RoundOpened) -> None:
    if event.run in followed.runs:
        followed.last_reserved[event.run] = event.reserved
    listed = {each.node for each in unpack_assignments(event.assignments)} & followed.nodes.keys()
    if listed:
        jobs = {node: bitmap_of(jobs_of(event.assignments, node)) for node in sorted(listed)}
        followed.rounds[event.round] = WatchedRound(event.run, jobs)


def _missing(event: events.RoundClosed, round_: WatchedRound) -> Iterator[Notice]:
    for node, listed in round_.listed.items():
        missing = listed & ~event.submitted
        if missing:
            text = f"Node {node} did not hand in {_jobs(missing)} of round {event.round} in time."
            yield Notice(NoticeKind.VOID, f"missing/{event.round}/{node}", text)


def _note_disputable(round_: WatchedRound, event: events.RoundTallied) -> None:
    round_.deadline = event.deadline
    for node, submitted in round_.submitted.items():
        by_verdict = jobs_by_verdict(event.accepted, event.fraud, submitted)
        round_.disputable[node] = submitted & ~by_verdict[Verdict.ACCEPTED]


def _unpaid(
    event: events.SubmissionSettled | events.RoundVoided, key: str, void: int, unavailable: int, node: int = 0
) -> Iterator[Notice]:
    parts = [f"{_jobs(jobs)} {word}" for jobs, word in ((void, "void"), (unavailable, "unavailable")) if jobs]
    if parts:
        owner = node or getattr(event, "node", 0)
        first = jobs_in(void | unavailable)[0]
        text = f"Round {event.round} ended for node {owner} with {' and '.join(parts)}, unpaid."
        text += f" Why: assize ledger why {event.round}/{first}."
        yield Notice(NoticeKind.VOID, key, text)


def _jobs(bitmap: int) -> str:
    jobs = jobs_in(bitmap)
    return f"job {jobs[0]}" if len(jobs) == 1 else f"jobs {', '.join(map(str, jobs))}"
