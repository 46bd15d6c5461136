"""Credits, their movements, and the tokens beneath them."""

from __future__ import annotations

from ledger.facts.fact import Fact, Hex, Wide, fact


@fact("holder")
class Holding(Fact):
    """Tokens in wei that an address holds, from the token's transfers."""

    holder: str
    tokens: Wide


@fact("owner")
class Credit(Fact):
    """Owner's credits, in wei.

    ``balance`` = bought + unlocked + worked + judged + granted − redeemed − locked. ``worked`` was earned by a worker's
    rollouts, ``judged`` by a validator's votes, ``granted`` by appeals won. Locked are escrow and deposits.
    """

    owner: str
    bought: Wide = 0
    redeemed: Wide = 0
    locked: Wide = 0
    unlocked: Wide = 0
    worked: Wide = 0
    judged: Wide = 0
    granted: Wide = 0
    balance: Wide = 0


@fact("block_number", "log_index")
class CreditEntry(Fact):
    """One movement of an owner's credits. ``kind`` is bought, redeemed, locked, unlocked, worked, judged, granted.

    ``run``, ``round`` and ``node`` are 0 where the movement has none. ``receiver`` got the tokens of credits redeemed.
    """

    block_number: int
    log_index: int
    tx_hash: Hex
    owner: str
    kind: str
    run: int
    round: int
    node: int
    amount: Wide
    receiver: str = ""
