"""Why a job was paid, slashed or void: everything the chain says of it, in order, in words.

An explanation is made of the raw events alone, each a line with its transaction; nothing in it is the ledger's opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from ledger.facts import CreditEntry, Job, Node, Round, Slash
from ledger.queries.lookup import At, at
from ledger.store.index import EVENT
from ledger.store.records import decode_event
from ledger.store.rows import find_fact
from protocol.amounts import tokens
from protocol.chain import events as on_chain
from protocol.chain.events import Event
from protocol.chain.structs import Cause, Verdict, jobs_by_verdict, verdict_in
from protocol.errors import Rejected
from protocol.wire.assignments import assignee_of, jobs_in, jobs_of, unpack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.receipts import places_of, receipts_of
from protocol.wire.votes import Vote, reasons_of


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, and where on the chain it stands."""

    block_number: int
    log_index: int
    timestamp: int
    tx_hash: str
    says: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation as of a block: the outcome in one sentence, and the events that led to it."""

    subject: str
    at: At
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class _Subject:
    """Subject of an explanation: jobs of one round, their node, and a juror if the question is about its seat.

    ``trials`` are appeals to be told as well, each with the job that it tries.
    """

    round: Round
    jobs: frozenset[int]
    node: int
    juror: int = 0
    trials: dict[int, int] = field(default_factory=dict)

    def has_seat(self, round_: int, juror: int) -> bool:
        """Returns whether a seat belongs to the explanation; in an appeal every seat does."""
        return self.juror in (0, juror) or round_ in self.trials

    def of_jobs(self, bitmap: int) -> str:
        """Those of the case's jobs that are in a bitmap, in words; empty where none is."""
        return _jobs(sorted(self.jobs & set(jobs_in(bitmap))))


def why_job(connection: Connection, round_: int, job: int) -> Explanation | None:
    """Explains what became of one job; None where no round of this number has it."""
    fact = find_fact(connection, Round, round_)
    if fact is None or not 0 <= job < fact.jobs or fact.parent:
        return None
    node = assignee_of(fact.assignments, job)
    held = find_fact(connection, Job, round_, job)
    if held is None:
        became = "was not submitted"
    else:
        became = {"submitted": "is not judged yet"}.get(held.verdict, f"is {held.verdict}")
        became += f", and {tokens(held.credited)} were credited for it" if held.credited else ""
    case = _Subject(fact, frozenset({job}), node, trials=_trials(connection, fact, {job}))
    return Explanation(
        f"job {job} of round {round_}, assigned to node {node}, {became}", at(connection), _told(connection, case)
    )


def why_entry(connection: Connection, block_number: int, log_index: int) -> Explanation | None:
    """Explains the movement of credits, or the slash, that stands at a place on the chain; None where none does."""
    entry = find_fact(connection, CreditEntry, block_number, log_index)
    if entry is not None:
        return _why_credit(connection, entry)
    slash = find_fact(connection, Slash, block_number, log_index)
    return None if slash is None else _why_slash(connection, slash)


def _why_credit(connection: Connection, entry: CreditEntry) -> Explanation:
    subject = f"{entry.owner}: {tokens(entry.amount)} of credits, {entry.kind}"
    round_ = find_fact(connection, Round, entry.round) if entry.round else None
    if round_ is None:
        only = select(EVENT).where(EVENT.c.block_number == entry.block_number, EVENT.c.log_index == entry.log_index)
        return Explanation(subject, at(connection), tuple(_plain(row) for row in connection.execute(only)))
    subject += f", in round {entry.round}"
    if entry.node:
        case = _case_of(connection, round_, entry.node)
        return Explanation(f"{subject} for node {entry.node}", at(connection), _told(connection, case))
    case = _case_tried(connection, round_, entry)
    return Explanation(f"{subject} for appeal {min(case.trials)}", at(connection), _told(connection, case))


def _why_slash(connection: Connection, slash: Slash) -> Explanation:
    taken = f"{tokens(slash.amount)} of its bond taken for {slash.cause} in round {slash.round}"
    subject = f"node {slash.node} of {slash.owner}: {taken}"
    round_ = find_fact(connection, Round, slash.round)
    if round_ is None:
        return Explanation(subject, at(connection), ())
    if slash.cause == Cause.OVERTURNED.name.lower():
        case = _case_tried(connection, round_, slash, juror=slash.node)
    else:
        case = _case_of(connection, round_, slash.node)
    return Explanation(subject, at(connection), _told(connection, case))


def _case_of(connection: Connection, round_: Round, node: int) -> _Subject:
    """A node's part in a round: the jobs it was assigned, or its seat."""
    held = find_fact(connection, Node, node)
    if held is not None and held.role == "validator":
        return _Subject(round_, frozenset(jobs_in(round_.submitted)), 0, juror=node)
    jobs = set() if round_.parent else set(jobs_of(round_.assignments, node))
    return _Subject(round_, frozenset(jobs), node, trials=_trials(connection, round_, jobs))


def _case_tried(connection: Connection, round_: Round, entry: CreditEntry | Slash, juror: int = 0) -> _Subject:
    """The job whose appeal a grant, or the slash of an overturned juror, is part of: it is decided right after."""
    later = select(EVENT).where(
        EVENT.c.block_number == entry.block_number,
        EVENT.c.log_index > entry.log_index,
        EVENT.c.name == on_chain.AppealDecided.__name__,
    )
    row = connection.execute(later.order_by(EVENT.c.log_index).limit(1)).one()
    decided = decode_event(row.name, row.payload)
    assert isinstance(decided, on_chain.AppealDecided)
    node = 0 if juror else assignee_of(round_.assignments, decided.job)
    return _Subject(round_, frozenset({decided.job}), node, juror, {decided.appeal: decided.job})


def _trials(connection: Connection, round_: Round, jobs: set[int]) -> dict[int, int]:
    """The appeals of those of a round's jobs that were appealed, and which job each tries."""
    held = (find_fact(connection, Job, round_.round, job) for job in sorted(jobs & set(jobs_in(round_.appealed))))
    return {job.appeal: job.job for job in held if job is not None}


def _told(connection: Connection, case: _Subject) -> tuple[Line, ...]:
    """The lines of the round, and of the trials that are part of the case."""
    numbers = [case.round.round, *case.trials]
    rows = connection.execute(
        select(EVENT).where(EVENT.c.round.in_(numbers)).order_by(EVENT.c.block_number, EVENT.c.log_index)
    )
    return tuple(_lines(rows, case))


def _lines(rows: Iterable[Any], case: _Subject) -> Iterator[Line]:
    told = [(row, decode_event(row.name, row.payload)) for row in rows]
    judged: set[int] = set()
    for (row, event), job in zip(told, _jobs_decided([event for _, event in told]), strict=True):
        if isinstance(event, on_chain.RoundTallied):
            judged.add(event.round)
        if _follows_from_appeal(event) and job not in case.jobs:
            continue
        said = _says(case, event, row.round in judged)
        if said:
            trial = f"appeal {row.round}: " * (row.round != case.round.round)
            yield Line(row.block_number, row.log_index, row.timestamp, row.tx_hash, trial + said)


def _says(case: _Subject, event: Event, judged: bool) -> str:
    """Returns the sentence that an event adds; ``judged`` if the round has a verdict."""
    say, concerns = _SAYINGS.get(type(event)), _CONCERNS.get(type(event))
    if say is None or (concerns is not None and not concerns(case, event)):
        return ""
    if isinstance(event, on_chain.JurorSettled) and not judged:
        paid = tokens(event.paid)
        return f"validator {event.juror} did its part though there was no quorum, and is paid in full: {paid}"
    return say(case, event)


def _jobs_decided(events: list[Event]) -> list[int]:
    """For each event the job of the appeal decided next, or -1: what an appeal entails comes just before its end."""
    jobs, job = [], -1
    for event in reversed(events):
        job = event.job if isinstance(event, on_chain.AppealDecided) else job
        jobs.append(job)
    return jobs[::-1]


def _follows_from_appeal(event: Event) -> bool:
    """Returns whether the event follows from an overturned verdict; such events do not name the job."""
    awards = isinstance(event, on_chain.SlashesAwarded | on_chain.CreditsGranted)
    return awards or (isinstance(event, on_chain.NodeSlashed) and event.cause is Cause.OVERTURNED)


def _plain(row: Any) -> Line:
    said = f"the contracts emitted {row.name} {row.payload}"
    return Line(row.block_number, row.log_index, row.timestamp, row.tx_hash, said)


# What each event says of a case; nothing where it does not concern it


def _opened(case: _Subject, event: on_chain.RoundOpened) -> str:
    beacon = f"the hash of this block, 0x{case.round.beacon.hex()}, is its beacon: prompts and noise follow from it"
    what = (
        f"round {event.round} of run {event.run} opens for step {event.step}, on policy version {event.policy_version}"
    )
    assigned = "" if case.juror else f"; node {case.node} is assigned {_jobs(sorted(case.jobs))}"
    return f"{what}{assigned}; {beacon}"


def _submitted(case: _Subject, event: on_chain.Submitted) -> str:
    leaves = [leaf for leaf in unpack_leaves(event.leaves) if leaf.job in case.jobs]
    if not leaves or case.juror:
        return ""
    told = "; ".join(f"job {leaf.job}: artifact 0x{leaf.root.hex()}, {leaf.units} units" for leaf in leaves)
    places = " ".join(places_of(event.uri))
    signed = f"node {event.node} submits, signed with its key: {told}; the files are at {places!r}"
    stores = ", ".join(str(receipt.store) for receipt in receipts_of(event.uri))
    return signed + (f", with receipts that name stores {stores} of the run's rules" if stores else "")


def _drawn(case: _Subject, event: on_chain.CommitteeDrawn) -> str:
    seats = ", ".join(map(str, event.jurors))
    return f"validators {seats} are drawn by the hash of block {event.seed_block}, 0x{event.seed.hex()}"


def _committed(case: _Subject, event: on_chain.VoteCommitted) -> str:
    return f"validator {event.juror} commits to a vote, hidden until it is revealed: 0x{event.commitment.hex()}"


def _revealed(case: _Subject, event: on_chain.VoteRevealed) -> str:
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    if vote.abstains:
        return f"validator {event.juror} abstains: {Reason.ABSTAIN.sentence}"
    if event.round in case.trials:
        # The contract cuts a vote to the jobs submitted: here to the one that is tried.
        word = _word(vote, case.trials[event.round])
        said = f"{word} ({_reason(event.reasons[0]) if event.reasons else Reason.ACCEPTED.sentence})"
    else:
        said = _votes(case, vote)
    evidence = f"its evidence has the root 0x{event.evidence_root.hex()}"
    return f"validator {event.juror} says {said}; {evidence}" if said else ""


def _votes(case: _Subject, vote: Vote) -> str:
    """Returns a vote on the subject's jobs, grouped by reason."""
    try:
        reasons = reasons_of(vote, case.round.submitted)
    except Rejected as error:
        return f"something that cannot be read ({error})"
    together: dict[Reason, list[int]] = {}
    for job, reason in reasons.items():
        if job in case.jobs:
            together.setdefault(reason, []).append(job)
    return "; ".join(
        f"{_jobs(jobs)} {_word(vote, jobs[0])} ({reason.name.lower()}: {reason.sentence})"
        for reason, jobs in sorted(together.items())
    )


def _word(vote: Vote, job: int) -> str:
    return verdict_in(vote.accept, vote.fraud, job).name.lower()


def _reason(code: int) -> str:
    try:
        return Reason(code).sentence
    except ValueError:
        return f"reason {code}, which has no meaning"


def _tallied(case: _Subject, event: on_chain.RoundTallied) -> str:
    if event.round != case.round.round:
        job = case.trials[event.round]
        return f"the committee decides: {verdict_in(event.accepted, event.fraud, job).name.lower()}"
    said = _by_verdict(case, event.accepted, event.fraud, case.round.submitted)
    final = f"it may be appealed until {event.deadline}" if case.round.appeal_seats else "it is final"
    return f"the majority's verdict: {said or 'of other jobs'}; {final}"


def _by_verdict(case: _Subject, accepted: int, fraud: int, submitted: int) -> str:
    parts = jobs_by_verdict(accepted, fraud, submitted)
    return "; ".join(f"{jobs} {word.name.lower()}" for word, bits in parts.items() if (jobs := case.of_jobs(bits)))


def _appealed(case: _Subject, event: on_chain.AppealOpened) -> str:
    against = Verdict(event.against).name.lower()
    deposit = f"with {tokens(event.deposit)} as deposit"
    return f"{event.appellant} appeals against {against} for job {event.job}, {deposit}: appeal {event.appeal}"


def _decided(case: _Subject, event: on_chain.AppealDecided) -> str:
    if not event.decided:
        verdict = Verdict(event.verdict).name.lower()
        return f"no majority names a verdict in appeal {event.appeal}: job {event.job} is {verdict}"
    return f"appeal {event.appeal} ends: job {event.job} is {Verdict(event.verdict).name.lower()}"


def _consumed(case: _Subject, event: on_chain.JobsConsumed) -> str:
    jobs = case.of_jobs(event.jobs)
    return f"a checkpoint of run {event.run} is trained on {jobs}" if jobs and not case.juror else ""


def _tainted(case: _Subject, event: on_chain.JobsTainted) -> str:
    jobs = case.of_jobs(event.jobs)
    return f"{jobs}, already trained on, no longer accepted: checkpoints of run {event.run} stand on it" if jobs else ""


def _settled(case: _Subject, event: on_chain.SubmissionSettled) -> str:
    said = _by_verdict(case, event.accepted, event.fraud, event.accepted | event.fraud | event.void_jobs)
    price = f"{event.units} accepted units at {tokens(case.round.price_per_unit)}: {tokens(event.paid)}"
    return f"node {event.node}'s submission is settled: {said}; {price}" if said else ""


def _job_settled(case: _Subject, event: on_chain.AppealedJobSettled) -> str:
    word = Verdict(event.verdict).name.lower()
    return f"job {event.job}, appealed, is settled as {word}: {tokens(event.paid)} for {event.units} units"


def _juror_settled(case: _Subject, event: on_chain.JurorSettled) -> str:
    return f"validator {event.juror} agreed with the verdict on {event.bits} jobs: {tokens(event.paid)}"


def _earned(case: _Subject, event: on_chain.CreditsEarned) -> str:
    earned = tokens(event.amount)
    return f"{event.owner} earns {earned} of credits for node {event.node}, from the escrow of run {event.run}"


def _slashed(case: _Subject, event: on_chain.NodeSlashed) -> str:
    overturned = event.cause is Cause.OVERTURNED
    if event.node not in (case.node, case.juror) and (case.juror or not overturned):
        return ""
    cause = "a verdict that is overturned" if overturned else event.cause.name.lower()
    return f"node {event.node} loses {tokens(event.amount)} of its bond for {cause}; {tokens(event.bond)} remain"


def _trap(case: _Subject, event: on_chain.TrapOpened) -> str:
    if event.job not in case.jobs:
        return ""
    found = (
        f"validators {', '.join(map(str, event.finders))} found it and share" if event.finders else "nobody found it:"
    )
    return f"job {event.job} was a trap of set {event.set}: {event.kind.sentence}; {found} {event.bounty} wei"


def _jobs(jobs: list[int]) -> str:
    if not jobs:
        return ""
    return f"job {jobs[0]}" if len(jobs) == 1 else f"jobs {', '.join(map(str, jobs))}"


_SAYINGS: dict[type[Event], Callable[[_Subject, Any], str]] = {
    on_chain.RoundOpened: _opened,
    on_chain.Submitted: _submitted,
    on_chain.RoundClosed: lambda case, event: f"work ends; a committee may be drawn until {event.deadline}",
    on_chain.CommitteeDrawn: _drawn,
    on_chain.VoteCommitted: _committed,
    on_chain.RevealStarted: lambda case, event: f"committing ends; votes are revealed until {event.deadline}",
    on_chain.VoteRevealed: _revealed,
    on_chain.CommitteeRedrawn: lambda case, event: "there is no quorum: every seat is drawn again",
    on_chain.RoundTallied: _tallied,
    on_chain.AppealOpened: _appealed,
    on_chain.AppealDecided: _decided,
    on_chain.JobsConsumed: _consumed,
    on_chain.JobsTainted: _tainted,
    on_chain.SubmissionSettled: _settled,
    on_chain.AppealedJobSettled: _job_settled,
    on_chain.JurorSettled: _juror_settled,
    on_chain.CreditsEarned: _earned,
    on_chain.NodeSlashed: _slashed,
    on_chain.SlashesAwarded: lambda case, event: f"{event.owner} is awarded {tokens(event.amount)} of slashed bonds",
    on_chain.CreditsGranted: lambda case, event: f"{event.owner} is granted {tokens(event.amount)} of credits for them",
    on_chain.RoundVoided: lambda case, event: (
        "the round ends without a verdict: no job of it is paid for, and no worker is slashed"
    ),
    on_chain.RoundSettled: lambda case, event: "the round is settled",
    on_chain.TrapOpened: _trap,
}
"""Event type to what it says of a case, in words."""

_CONCERNS: dict[type[Event], Callable[[_Subject, Any], bool]] = {
    on_chain.CommitteeDrawn: lambda case, event: any(case.has_seat(event.round, juror) for juror in event.jurors),
    on_chain.VoteCommitted: lambda case, event: case.has_seat(event.round, event.juror),
    on_chain.VoteRevealed: lambda case, event: case.has_seat(event.round, event.juror),
    on_chain.AppealOpened: lambda case, event: event.job in case.jobs,
    on_chain.AppealDecided: lambda case, event: event.job in case.jobs,
    on_chain.AppealedJobSettled: lambda case, event: event.job in case.jobs,
    on_chain.SubmissionSettled: lambda case, event: event.node == case.node,
    on_chain.JurorSettled: lambda case, event: event.juror == case.juror,
    on_chain.CreditsEarned: lambda case, event: event.node in (case.node, case.juror),
}
"""Event type to whether such an event concerns a case; of every other type, its sentence is empty if not."""
