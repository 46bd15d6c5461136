"""Decisions of ``assize join``: which steps remain before a node works, and what they cost. PURE.

Every step is left out once the chain shows its effect, so that the command goes on where it was ended, whenever that
was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from protocol.amounts import coin, tokens
from protocol.errors import Rejected


class JoinStep(StrEnum):
    """Steps in their order, as people read them."""

    TAKE_GAS = "take gas from the local chain"
    TAKE_TOKENS = "take tokens from the test network's faucet"
    REGISTER = "register the node with its bond; both keys sign"
    DEPOSIT = "add a margin to the bond"
    SEND_GAS = "send gas to the session key"
    JOIN_RUN = "consent to the run's rules"


GAS = {
    JoinStep.TAKE_TOKENS: 90_000,
    JoinStep.REGISTER: 260_000,
    JoinStep.DEPOSIT: 120_000,
    JoinStep.SEND_GAS: 21_000,
    JoinStep.JOIN_RUN: 110_000,
}
"""Gas of each step, its approval of tokens included; `contracts/gas.json` has the calls' own."""


DEFAULT_CAPACITY = 8


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options as typed for either role; None is asked for, or takes its default."""

    network: str | None = None
    run: int | None = None
    wallet: str | None = None
    key: str | None = None
    password_file: Path | None = None
    state_dir: Path | None = None
    fee_cap_gwei: int | None = None
    yes: bool = False
    no_start: bool = False
    as_json: bool = False
    device: str | None = None
    capacity: int | None = None
    engine: str | None = None
    margin: str | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """Membership as wanted, in token wei and wei of coin.

    Args:
        capacity: most jobs in flight; 1 for a validator.
        bond: bond that the contract requires.
        margin: tokens above it.
        key_gas: coin that the session key is given.
    """

    run: int
    capacity: int
    bond: int
    margin: int
    key_gas: int


@dataclass(frozen=True, slots=True)
class Foothold:
    """State that is there already.

    Args:
        node: the session key's node; 0 if it has none.
        bond: that node's bond.
        joined: whether it has joined the run at its present rules.
        tokens: the owner's tokens.
        owner_gas, key_gas: coin of the two keys.
        gives_gas: whether the chain gives gas to anyone, as local ones do.
        gives_tokens: whether its token has a faucet.
        waits: whether the node waits for a validator slot; until it has it, it can neither be paid into nor join a run.
    """

    node: int
    bond: int
    joined: bool
    tokens: int
    owner_gas: int
    key_gas: int
    gives_gas: bool
    gives_tokens: bool
    waits: bool = False


def jobs_expected(capacity: int, others: int, jobs: int) -> float:
    """Returns the jobs of a round of ``jobs`` that fall to a capacity, as coordinators divide them by capacity."""
    return jobs * capacity / (capacity + others)


def usual_capacity(others: int, jobs: int) -> int:
    """Returns the capacity to offer: the least that one job of each round falls to, if it is above the default.

    A smaller node has a job in some rounds only.

    Args:
        others: capacity of the workers that have joined the run and hold their bond.
        jobs: jobs of its newest round; 0 if there was none.
    """
    return max(DEFAULT_CAPACITY, -(-others // (jobs - 1)) if jobs > 1 else 0)


def tokens_missing(wanted: Membership, held: Foothold) -> int:
    """Returns the token wei that the owner still has to pay into the bond, none while the node waits for a slot."""
    return 0 if held.waits else max(wanted.bond + wanted.margin - held.bond, 0)


def gas_needed(steps: tuple[JoinStep, ...], wanted: Membership, gas_price: int) -> int:
    """Returns the most coin that the owner spends on the steps, what it sends to the session key included."""
    sent = wanted.key_gas if JoinStep.SEND_GAS in steps else 0
    return sent + sum(GAS.get(step, 0) for step in steps) * gas_price


def remaining_steps(wanted: Membership, held: Foothold) -> tuple[JoinStep, ...]:
    """Returns the steps that remain, in their order."""
    missing = tokens_missing(wanted, held)
    consents = not held.joined and not held.waits
    spends = not held.node or missing > 0 or consents
    poor = held.key_gas * 2 < wanted.key_gas  # half is enough: a key that has worked has spent some of it
    due = {
        JoinStep.TAKE_GAS: held.gives_gas and (poor or (spends and held.owner_gas < wanted.key_gas)),
        JoinStep.TAKE_TOKENS: held.gives_tokens and missing > held.tokens,
        JoinStep.REGISTER: not held.node,
        JoinStep.DEPOSIT: missing > (0 if held.node else wanted.bond),
        JoinStep.SEND_GAS: not held.gives_gas and poor,
        JoinStep.JOIN_RUN: consents,
    }
    return tuple(step for step, is_due in due.items() if is_due)


def refuse_unpayable(
    steps: tuple[JoinStep, ...], wanted: Membership, held: Foothold, gas_price: int, owner: str
) -> None:
    """Raises ``Rejected`` with the numbers if the owner cannot pay for the steps, so that none is begun."""
    missing, gas = tokens_missing(wanted, held), gas_needed(steps, wanted, gas_price)
    if missing > held.tokens and JoinStep.TAKE_TOKENS not in steps:
        raise Rejected(
            f"too few tokens: {owner} has {tokens(held.tokens)}, bond and margin need {tokens(missing)}; send it the "
            "rest, then type this again"
        )
    if gas > held.owner_gas and JoinStep.TAKE_GAS not in steps:
        raise Rejected(
            f"too little gas: {owner} has {coin(held.owner_gas)}, this needs up to {coin(gas)}; send it coin, then "
            "type this again"
        )
