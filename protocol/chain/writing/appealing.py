"""Appeals from start to finish: what one takes, opening it, what became of it.

As in ``actions``: checks first, each with one sentence, then transactions, then the answer. The batch that holds the
disputed job is resupplied from the chain's own events, so that an appellant needs nothing but its key.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chain.abi import artifact
from protocol.chain.events import AppealDecided, AppealOpened, Event, Submitted
from protocol.chain.reading.client import Chain
from protocol.chain.reading.decoding import decode_event, topic_of
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Appeal, Round, SettledLeaves, State, Verdict, verdict_in
from protocol.chain.writing import actions, calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.wire.assignments import unpack_leaves


@dataclass(frozen=True, slots=True)
class Case:
    """What appealing against the verdict on one job takes: its batch as submitted, and the deposit in credits."""

    round: int
    job: int
    verdict: Verdict
    node: int
    batch: int
    submissions: tuple[SettledLeaves, ...]
    deposit: int


def case_of(chain: Chain, round: int, job: int) -> Case:
    """Gathers the case from the chain.

    Raises:
        Rejected: there is nothing to appeal against, no more, or not yet.
    """
    reader = chain.latest()
    stored = reader.round(round)
    _check_round(round, stored)
    if not 0 <= job < stored.jobs:
        raise Rejected(f"round {round} has the jobs 0 to {stored.jobs - 1}, no job {job}")
    if not stored.submitted >> job & 1:
        raise Rejected(
            f"job {job} of round {round} was never submitted: nothing was judged, and nothing can be appealed"
        )
    earlier = reader.appeal_of(round, job)
    if earlier:
        raise Rejected(f"job {job} of round {round} was appealed already, as number {earlier}; an appeal is final")
    if chain.head().timestamp >= stored.deadline:
        raise _over(round, stored)
    batch, node, submissions = _batch_of(chain, round, stored.open_block, job)
    deposit = reader.rounds_terms().appeal_bond + most_fees(stored.appeal_seats, stored.juror_fee)
    return Case(round, job, verdict_in(stored.accepted, stored.fraud, job), node, batch, submissions, deposit)


def most_fees(seats: int, juror_fee: int) -> int:
    """Most credits the jurors of an appeal can earn: a first attempt short of a quorum, then a full committee."""
    return (seats + (seats - 1) // 2) * juror_fee


def appeal_call(chain: Chain, case: Case) -> calls.Call:
    """The call that opens an appeal."""
    return calls.appeal(chain.deployment, case.round, case.job, case.batch, case.submissions)


def open_appeal(sender: Sender, round: int, job: int, intent: str) -> AppealOpened:
    """Appeals against the verdict on one job; what credits the deposit lacks are bought with tokens.

    Raises:
        Rejected: nothing to appeal against, too late, or too few credits and tokens for the deposit.
    """
    case = case_of(sender.chain, round, job)
    check_deposit(sender, case)
    missing = missing_credits(sender, case)
    if missing > 0:
        actions.buy_credits(sender, missing, f"{intent}/buy")
    try:
        receipt = sender.send(intent, appeal_call(sender.chain, case))
    except Reverted as refusal:
        if refusal.name == "TooLate":
            raise _over(round, sender.chain.latest().round(round)) from refusal
        raise
    return actions.event_in(receipt, AppealOpened)


def missing_credits(sender: Sender, case: Case) -> int:
    """Credits that the deposit lacks and that are bought first."""
    return max(0, case.deposit - sender.chain.latest().credits_of(sender.address))


def check_deposit(sender: Sender, case: Case) -> None:
    """Raises ``Rejected`` where the sender cannot pay the deposit out of credits and tokens together."""
    reader = sender.chain.latest()
    credits, tokens = reader.credits_of(sender.address), reader.balance_of(sender.address)
    if credits + tokens < case.deposit:
        raise Rejected(
            f"an appeal against job {case.job} of round {case.round} takes a deposit of {case.deposit} credits; "
            f"{sender.address} has {credits} credits and {tokens} token wei; {actions.GET_TOKENS}"
        )


def appeals(chain: Chain) -> dict[int, tuple[Appeal, Round]]:
    """Every appeal by its number, with the round as which it is tried."""
    reader = chain.pinned(chain.head())
    numbers = range(1, reader.round_count() + 1)
    tried = {number: round for number, round in zip(numbers, reader.rounds(numbers), strict=True) if not round.jobs}
    made: list[Appeal] = reader.views("Rounds", "appealAt", [(number,) for number in tried])
    return {number: (appeal, tried[number]) for number, appeal in zip(tried, made, strict=True)}


def appeal_numbered(chain: Chain, number: int) -> tuple[Appeal, Round]:
    """One appeal, with the round as which it is tried.

    Raises:
        Rejected: the number is no appeal's.
    """
    reader = chain.pinned(chain.head())
    appeal = reader.appeal(number)
    if not appeal.round:
        raise Rejected(f"{number} is not the number of an appeal; see: assize appeal list")
    return appeal, reader.round(number)


def decision_on(chain: Chain, number: int) -> AppealDecided | None:
    """What an appeal came to; None while it is undecided."""
    found = _events(chain, AppealDecided, number, chain.deployment.start_block)
    return found[0] if found and isinstance(found[0], AppealDecided) else None


def _check_round(round: int, stored: Round) -> None:
    if stored.state is State.NONE:
        raise Rejected(f"there is no round {round}")
    if not stored.jobs:
        raise Rejected(f"{round} is the number of an appeal, and an appeal is final")
    if stored.state is State.VOID:
        raise Rejected(f"round {round} ended without a verdict: there is nothing to appeal against")
    if stored.state is State.SETTLED:
        raise Rejected(f"the time to appeal in round {round} is over: it is settled")
    if stored.state is not State.TALLIED:
        raise Rejected(f"round {round} has no verdict yet; appeal once it is tallied")
    if not stored.appeal_seats:
        raise Rejected(f"run {stored.run} offers no appeals")


def _over(round: int, stored: Round) -> Rejected:
    return Rejected(f"the time to appeal in round {round} was over at {stored.deadline} (unix seconds)")


def _batch_of(chain: Chain, round: int, open_block: int, job: int) -> tuple[int, int, tuple[SettledLeaves, ...]]:
    """The batch that holds a job, the job's node, and what of the batch was taken, in order."""
    parts = [event for event in _events(chain, Submitted, round, open_block) if isinstance(event, Submitted)]
    for part in parts:
        if any(leaf.job == job for leaf in unpack_leaves(part.leaves)):
            batch = tuple(SettledLeaves(each.node, each.leaves) for each in parts if each.batch == part.batch)
            return part.batch, part.node, batch
    raise Rejected(f"this RPC does not give the events of round {round}: ask one that keeps them")


def _events(chain: Chain, kind: type[Event], number: int, first_block: int) -> list[Event]:
    """The events of one kind of ``Rounds`` whose first indexed field is ``number``, in chain order."""
    entry = next(
        each for each in artifact("Rounds")["abi"] if each["type"] == "event" and each["name"] == kind.__name__
    )
    wanted = {
        "fromBlock": hex(first_block),
        "toBlock": "latest",
        "address": chain.deployment.rounds,
        "topics": [topic_of(entry), f"0x{number:064x}"],
    }
    raws = chain.rpc.call("eth_getLogs", wanted)
    return [event for raw in raws if (event := decode_event("Rounds", raw["topics"], raw["data"])) is not None]
