"""Traps: setting planted faults, and opening what is due. Both return plans, as the verbs of ``actions`` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from protocol.chain.events import TrapsSet
from protocol.chain.reading.client import Chain
from protocol.chain.reading.plantings import Plantings
from protocol.chain.structs import Round, State, TrapSet, Verdict, verdict_in
from protocol.chain.writing import actions, calls
from protocol.chain.writing.account import Account
from protocol.chain.writing.calls import Call
from protocol.chain.writing.plans import Plan, event_of
from protocol.errors import Rejected
from protocol.wire.traps import Trap, TrapKind, leaf_of, proof_of, root_of

LeafState = Literal["opened", "hidden", "due", "missed", "lost"]
"""State of one leaf.

opened  its share is paid or returned
hidden  not planted or not judged yet, its verdict is being appealed, or a decoy whose rounds are not opened
due     can be opened now
missed  the planted job was not found to be fraud, which can still be appealed
lost    can never be opened: its deadline or its round is over, or a checkpoint was trained on it
"""


@dataclass(frozen=True, slots=True)
class LeafReport:
    """One leaf of a set as it stands; ``round`` is 0 if it is planted in none."""

    index: int
    trap: Trap
    state: LeafState
    round: int = 0
    job: int = 0
    assignments: bytes = b""


def set_traps(
    sender: Account, run: int, traps: Sequence[Trap], bounty: int, first: int, open_by: int
) -> Plan[TrapsSet]:
    """Announces traps by their Merkle root, and deposits a bounty for each.

    Raises:
        Rejected: the run is not the sender's or offers no appeals, a round of the set is open, or tokens are missing.
    """
    chain, reader = sender.chain, sender.chain.latest()
    stored = reader.run(run)
    if stored.requester != sender.address:
        raise Rejected(f"run {run} belongs to {stored.requester}: only its requester can set traps")
    if not stored.terms.appeal_seats:
        raise Rejected(f"run {run} offers no appeals: nobody would pay for a missed trap")
    if first <= (count := reader.round_count()):
        raise Rejected(f"round {count} is open already: a set that begins at round {first} is too late; plan another")
    root = root_of(_leaves(chain, traps))
    payment = actions.approving(sender, "Traps", len(traps) * bounty)
    call = calls.set_traps(chain.deployment, run, root, len(traps), bounty, first, open_by)
    return Plan(sender, (*payment, call), event_of(TrapsSet))


def set_numbered(chain: Chain, run: int, traps: Sequence[Trap]) -> tuple[int, TrapSet]:
    """Returns the number of the run's set with these leaves, and the set. A copy of its root in another run is not it.

    Raises:
        Rejected: it was never set.
    """
    reader = chain.latest()
    root = root_of(_leaves(chain, traps))
    for number in range(reader.view("Traps", "setCount"), 0, -1):
        made = reader.trap_set(number)
        if (made.run, made.root) == (run, root):
            return number, made
    raise Rejected(f"these traps were never set in run {run}; set them with: assize traps set FILE")


def reports(chain: Chain, run: int, traps: Sequence[Trap]) -> list[LeafReport]:
    """Returns how each leaf of a set stands."""
    return _reports(chain, traps, *set_numbered(chain, run, traps))


def _reports(chain: Chain, traps: Sequence[Trap], number: int, made: TrapSet) -> list[LeafReport]:
    reader, now = chain.pinned(chain.head()), chain.head().timestamp
    plantings, count = Plantings(chain, made.run, traps), reader.round_count()
    places = {
        trap: (round, job)
        for round in range(made.first, min(count, max(trap.to for trap in traps)) + 1)
        for job, trap in plantings.in_round(round).items()
    }
    found = []
    for index, (trap, leaf) in enumerate(zip(traps, _leaves(chain, traps), strict=True)):
        round, job = places.get(trap, (0, 0))
        if reader.leaf_opened(number, leaf):
            state: LeafState = "opened"
        elif now > made.open_by:
            state = "lost"
        elif trap.kind is TrapKind.DECOY:
            state = "due" if count >= trap.to else "hidden"
        else:
            state = _state(reader.round(round), job, now) if round else "hidden"
        found.append(LeafReport(index, trap, state, round, job, plantings.assignments(round)))
    return found


def _leaves(chain: Chain, traps: Sequence[Trap]) -> list[bytes]:
    return [leaf_of(chain.chain_id, chain.deployment.traps, trap) for trap in traps]


def _state(round: Round, job: int, now: int) -> LeafState:
    """State of a trap that was planted in this job."""
    if round.state in (State.OPEN, State.CLOSED, State.VOTING):
        return "hidden"
    verdict, consumed = verdict_in(round.accepted, round.fraud, job), round.consumed >> job & 1
    if round.state is not State.TALLIED or consumed:
        return "lost"
    if verdict is Verdict.FRAUD:
        return "due"
    appealable = round.appeal_seats and now < round.deadline and not round.appealed >> job & 1
    return "missed" if appealable else "hidden" if round.appealed >> job & 1 else "lost"


def opening(chain: Chain, run: int, traps: Sequence[Trap]) -> list[tuple[LeafReport, Call]]:
    """Returns the call that opens each leaf that is due."""
    number, made = set_numbered(chain, run, traps)
    leaves, calls_due = _leaves(chain, traps), []
    for report in _reports(chain, traps, number, made):
        if report.state == "due":
            proof = proof_of(leaves, report.index)
            calls_due.append((report, _open(chain, number, report, proof)))
    return calls_due


def _open(chain: Chain, number: int, report: LeafReport, proof: Sequence[bytes]) -> Call:
    if report.trap.kind is TrapKind.DECOY:
        return calls.open_decoy(chain.deployment, number, report.trap, proof)
    place = report.round, report.job, report.assignments
    return calls.open_trap(chain.deployment, number, report.trap, proof, *place)
