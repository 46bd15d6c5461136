"""Time line of a round: what each of its events did, in a sentence. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.queries.lookup import EventRecord
from protocol.amounts import tokens
from protocol.chain.structs import Cause, Refusal, Verdict, jobs_by_verdict
from protocol.errors import Rejected
from protocol.wire.assignments import jobs_in, unpack_leaves

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a time line, in words."""

    block_number: int
    log_index: int
    timestamp: int
    tx_hash: str
    name: str
    says: str


def moment(event: EventRecord) -> Moment:
    """Returns the moment of an event; of an event without a sentence of its own, its fields as they are."""
    say = SAYINGS.get(event.name)
    says = say(event.payload) if say else "; ".join(_field(*each) for each in event.payload.items())
    return Moment(event.block_number, event.log_index, event.timestamp, event.tx_hash, event.name, says)


def spans(jobs: tuple[int, ...]) -> str:
    """Returns jobs as spans, such as ``0–4, 7``."""
    parts: list[tuple[int, int]] = []
    for job in jobs:
        if parts and parts[-1][1] == job - 1:
            parts[-1] = (parts[-1][0], job)
        else:
            parts.append((job, job))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)


def _field(name: str, value: object) -> str:
    shown = tokens(int(str(value))) if name in AMOUNTS else _short(value)
    return f"{name.replace('_', ' ')} {shown}"


def _count(number: str, noun: str) -> str:
    return f"{int(number):,} {noun}{'' if int(number) == 1 else 's'}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:66]}… ({len(text):,} characters)"


def _jobs(bitmap: int) -> str:
    jobs = jobs_in(bitmap)
    return "no job" if not jobs else f"{'job' if len(jobs) == 1 else 'jobs'} {spans(jobs)}"


def _leaves(packed: str) -> str:
    try:
        return spans(tuple(leaf.job for leaf in unpack_leaves(bytes.fromhex(packed[2:]))))
    except Rejected:
        return "that cannot be read"


def _bits(payload: Payload, *names: str) -> tuple[int, ...]:
    return tuple(int(payload[name]) for name in names)


def _verdicts(accepted: int, fraud: int, submitted: int) -> str:
    parts = jobs_by_verdict(accepted, fraud, submitted)
    return "; ".join(f"{word.name.lower()}: {_jobs(bits)}" for word, bits in parts.items() if bits) or "no job"


def _tallied(event: Payload) -> str:
    accepted, fraud = _bits(event, "accepted", "fraud")
    said = _verdicts(accepted, fraud, accepted | fraud)
    return f"the majority's verdict: {said}; submitted jobs that it does not name are void"


def _revealed(event: Payload) -> str:
    accepted, fraud = _bits(event, "accept", "fraud")
    if not accepted and not fraud and event["reasons"] == "0xff":
        return f"validator {event['juror']} abstains"
    return f"validator {event['juror']} reveals its vote: {_verdicts(accepted, fraud, accepted | fraud)}"


def _settled(event: Payload) -> str:
    accepted, fraud, void = _bits(event, "accepted", "fraud", "void_jobs")
    paid = f"{tokens(int(event['paid']))} for {int(event['units']):,} units"
    return (
        f"node {event['node']}'s submission is settled: {_verdicts(accepted, fraud, accepted | fraud | void)}; {paid}"
    )


AMOUNTS = ("amount", "awarded", "bond", "bounty", "deposit", "escrow", "fees", "forfeited", "paid", "released")
"""Fields of events that are in wei."""

SAYINGS: dict[str, Callable[[Payload], str]] = {
    "RoundOpened": lambda event: (
        f"opened with {event['jobs']} jobs for step {event['step']}, on policy version {event['policy_version']}; "
        f"{tokens(int(event['reserved']))} are reserved"
    ),
    "Submitted": lambda event: (
        f"node {event['node']} submits jobs {_leaves(event['leaves'])} in batch {event['batch']}"
    ),
    "SubmissionRefused": lambda event: (
        f"a part of node {event['node']} is left out of its batch: "
        f"{Refusal(int(event['reason'])).name.lower().replace('_', ' ')}"
    ),
    "RoundClosed": lambda event: f"work ends with {_jobs(int(event['submitted']))} submitted",
    "CommitteeDrawn": lambda event: (
        f"validators {', '.join(event['jurors'])} are drawn by the hash of block {event['seed_block']}, "
        f"attempt {int(event['attempt']) + 1}"
    ),
    "VoteCommitted": lambda event: f"validator {event['juror']} commits to a vote",
    "RevealStarted": lambda event: "committing ends; votes are revealed",
    "VoteRevealed": _revealed,
    "RoundTallied": _tallied,
    "CommitteeRedrawn": lambda event: "there is no quorum: every seat is drawn again",
    "JobsConsumed": lambda event: f"a checkpoint of run {event['run']} is trained on {_jobs(int(event['jobs']))}",
    "JobsTainted": lambda event: f"{_jobs(int(event['jobs']))}, already trained on, no longer accepted",
    "SubmissionSettled": _settled,
    "JurorSettled": lambda event: (
        f"validator {event['juror']} agreed with the verdict on {_count(event['bits'], 'job')}: "
        f"{tokens(int(event['paid']))}"
    ),
    "CreditsEarned": lambda event: f"the owner of node {event['node']} earns {tokens(int(event['amount']))}",
    "CreditsGranted": lambda event: f"{_short(event['owner'])} is granted {tokens(int(event['amount']))}",
    "SlashesAwarded": lambda event: f"{_short(event['owner'])} is awarded {tokens(int(event['amount']))} of slashes",
    "NodeSlashed": lambda event: (
        f"node {event['node']} loses {tokens(int(event['amount']))} of its bond for "
        f"{Cause(int(event['cause'])).name.lower()}; {tokens(int(event['bond']))} remain"
    ),
    "NodeStruck": lambda event: f"validator {event['node']} has strike {event['strikes']} in run {event['run']}",
    "EscrowReserved": lambda event: f"{tokens(int(event['amount']))} of the escrow are reserved",
    "EscrowReleased": lambda event: f"{tokens(int(event['amount']))} go back to the escrow",
    "AppealOpened": lambda event: (
        f"job {event['job']} is appealed against {Verdict(int(event['against'])).name.lower()}: "
        f"appeal {event['appeal']}"
    ),
    "AppealDecided": lambda event: (
        f"appeal {event['appeal']} ends: job {event['job']} is {Verdict(int(event['verdict'])).name.lower()}"
    ),
    "AppealedJobSettled": lambda event: (
        f"job {event['job']}, appealed, is settled as {Verdict(int(event['verdict'])).name.lower()}: "
        f"{tokens(int(event['paid']))} for {int(event['units']):,} units"
    ),
    "RoundSettled": lambda event: f"settled; {tokens(int(event['released']))} go back to the escrow",
    "RoundVoided": lambda event: f"ended without a verdict; {tokens(int(event['released']))} go back to the escrow",
    "JobsFreed": lambda event: f"{_count(event['jobs'], 'job')} no longer in flight",
}
"""Name of an event to what it says. Events without a sentence are shown by their fields."""
