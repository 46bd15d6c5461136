"""Appeals: opening one, listing them, and their outcome.

Opening returns a plan, as the verbs in ``actions`` do. The batch that holds the disputed job is rebuilt from events, so
that an appellant needs only its key.
"""

from __future__ import annotations

from protocol.amounts import tokens
from protocol.chain.events import AppealDecided, AppealOpened, Submitted
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.chain.reading.lookup import events_of
from protocol.chain.structs import Appeal, Round, SettledLeaves, State, most_fees
from protocol.chain.writing import actions, calls
from protocol.chain.writing.account import Account
from protocol.chain.writing.plans import Plan, event_of
from protocol.errors import Rejected
from protocol.wire.assignments import unpack_leaves


def open_appeal(sender: Account, round: int, job: int) -> Plan[AppealOpened]:
    """Appeals against the verdict on one job, buying credits that the deposit lacks with tokens.

    Raises:
        Rejected: the verdict cannot be appealed (any more), or the sender cannot pay the deposit.
    """
    chain, reader = sender.chain, sender.chain.latest()
    stored = reader.round(round)
    _check_round(round, stored)
    _check_job(reader, round, job, stored)
    over = Rejected(f"the time to appeal in round {round} was over at {stored.deadline} (unix seconds)")
    if chain.head().timestamp >= stored.deadline:
        raise over
    batch, submissions = _batch_of(chain, round, stored.open_block, job)
    deposit = reader.rounds_terms().appeal_bond + most_fees(stored.appeal_seats, stored.juror_fee)
    bought = _missing_credits(sender, f"an appeal against job {job} of round {round}", deposit)
    appeal = calls.appeal(chain.deployment, round, job, batch, submissions)
    return Plan(sender, (*bought, appeal), event_of(AppealOpened), {"TooLate": over})


def _missing_credits(sender: Account, purpose: str, deposit: int) -> tuple[calls.Call, ...]:
    """Returns the calls that buy the credits that a deposit lacks."""
    reader = sender.chain.latest()
    credits, free = reader.credits_of(sender.address), reader.balance_of(sender.address)
    if credits + free < deposit:
        raise Rejected(
            f"{purpose} takes a deposit of {tokens(deposit)}; {sender.address} has {tokens(credits)} in credits and "
            f"{tokens(free)} besides; {actions.GET_TOKENS}"
        )
    return actions.buying(sender, deposit - credits) if credits < deposit else ()


def appeals(chain: Chain) -> dict[int, tuple[Appeal, Round, Round]]:
    """Returns every appeal by its number, with the round that tries it and the round appealed against."""
    reader = chain.pinned(chain.head())
    numbers = range(1, reader.round_count() + 1)
    tried = {number: round for number, round in zip(numbers, reader.rounds(numbers), strict=True) if not round.jobs}
    made: list[Appeal] = reader.views("Rounds", "appealAt", [(number,) for number in tried])
    parents = reader.rounds([appeal.round for appeal in made])
    return {
        number: (appeal, tried[number], parent) for number, appeal, parent in zip(tried, made, parents, strict=True)
    }


def appeal_numbered(chain: Chain, number: int) -> tuple[Appeal, Round, Round]:
    """Returns one appeal, with the round that tries it and the round appealed against.

    Raises:
        Rejected: there is no appeal of this number.
    """
    reader = chain.pinned(chain.head())
    appeal = reader.appeal(number)
    if not appeal.round:
        raise Rejected(f"{number} is not the number of an appeal; see: assize appeal list")
    return appeal, reader.round(number), reader.round(appeal.round)


def decision_on(chain: Chain, number: int) -> AppealDecided | None:
    """Returns the outcome of an appeal, or None while it is undecided."""
    found = events_of(chain, "Rounds", AppealDecided, number, chain.deployment.start_block)
    return found[0] if found else None


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


def _check_job(reader: Reader, round: int, job: int, stored: Round) -> None:
    if not 0 <= job < stored.jobs:
        raise Rejected(f"round {round} has the jobs 0 to {stored.jobs - 1}, no job {job}")
    if not stored.submitted >> job & 1:
        raise Rejected(f"job {job} of round {round} was never submitted: without a verdict there is no appeal")
    earlier = reader.appeal_of(round, job)
    if earlier:
        raise Rejected(f"job {job} of round {round} was appealed already, as number {earlier}; an appeal is final")


def _batch_of(chain: Chain, round: int, open_block: int, job: int) -> tuple[int, tuple[SettledLeaves, ...]]:
    """Returns the number of the batch that holds a job, and the batch's submissions that were taken, in order."""
    parts = events_of(chain, "Rounds", Submitted, round, open_block)
    for part in parts:
        if any(leaf.job == job for leaf in unpack_leaves(part.leaves)):
            batch = tuple(SettledLeaves(each.node, each.leaves) for each in parts if each.batch == part.batch)
            return part.batch, batch
    raise Rejected(f"the RPC at {chain.rpc.url} has no events of round {round}; use one that keeps them")
