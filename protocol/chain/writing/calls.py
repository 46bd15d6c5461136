"""Every contract function that is sent, as a ``Call``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.amounts import coin, tokens
from protocol.chain import abi
from protocol.chain.deployment import Deployment
from protocol.chain.structs import Consumption, Role, RunTerms, SettledLeaves, Submission, pack_parts, pack_submissions
from protocol.wire.traps import Trap

REVEAL_GAS = 1_000_000
"""More gas than the most expensive reveal takes: the last of fifteen seats, which tallies, slashes and redraws."""


TOKEN_AMOUNTS = frozenset({"amount", "value", "bounty", "total", "bond", "deposit", "escrow", "price"})
"""Names of the arguments and fields that hold tokens or credits in wei."""


@dataclass(frozen=True, slots=True)
class Call:
    """A transaction before it is signed: receiver, calldata, description for people, native wei.

    ``least_gas`` is a lower bound of the gas limit, for a call that may do more when mined than when simulated.
    """

    to: str
    data: bytes
    description: str
    value: int = 0
    least_gas: int = 0


def call(deployment: Deployment, contract: str, function: str, *arguments: Any) -> Call:
    """Returns a call of any function of the contracts."""
    shape = abi.functions(contract)[function]
    return Call(deployment.address_of(contract), shape.encode(*arguments), description_of(shape, arguments))


def description_of(function: abi.Entry, arguments: Sequence[Any]) -> str:
    """Returns a function with its arguments, for people."""
    return f"{function.contract}.{function.name}({listed(zip(function.parameters, arguments, strict=True))})"


def listed(named: Iterable[tuple[str, Any]]) -> str:
    """Returns arguments of a call, or fields of an event, for people: amounts in tokens."""
    return ", ".join(f"{name}={worded(name, value)}" for name, value in named)


def worded(name: str, value: Any) -> str:
    """Returns one argument of a call, or field of an event, for people."""
    if name in TOKEN_AMOUNTS:
        return tokens(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}" if len(value) <= 32 else f"0x{value[:16].hex()}… ({len(value)} bytes)"
    if isinstance(value, Role):
        return value.name.lower()
    return str(value)


# The chain's own coin and Token


def pay_native(to: str, amount: int) -> Call:
    """Sends ``amount`` wei of the chain's own coin."""
    return Call(to, b"", f"send {coin(amount)} to {to}", amount)


def drip(deployment: Deployment, to: str, amount: int) -> Call:
    """Takes ``amount`` token wei from the faucet."""
    return call(deployment, "Token", "drip", to, amount)


def transfer(deployment: Deployment, to: str, amount: int) -> Call:
    """Sends ``amount`` token wei."""
    return call(deployment, "Token", "transfer", to, amount)


def approve(deployment: Deployment, contract: str, amount: int) -> Call:
    """Lets one of our contracts take ``amount`` of the sender's tokens."""
    return call(deployment, "Token", "approve", deployment.address_of(contract), amount)


# Registry


def register(deployment: Deployment, role: Role, key: str, capacity: int, deadline: int, key_signature: bytes) -> Call:
    """Registers a node of the sender, and takes its bond."""
    return call(deployment, "Registry", "register", role, key, capacity, deadline, key_signature)


def contest(deployment: Deployment, key: str, deadline: int, key_signature: bytes) -> Call:
    """Registers a validator as a newcomer to the slot with the least bond."""
    return call(deployment, "Registry", "contest", key, deadline, key_signature)


def displace(deployment: Deployment, newcomer: int) -> Call:
    """Passes a slot to the newcomer that its holder did not match."""
    return call(deployment, "Registry", "displace", newcomer)


def top_up(deployment: Deployment, node: int, amount: int) -> Call:
    """Adds to a node's bond."""
    return call(deployment, "Registry", "topUp", node, amount)


def retire(deployment: Deployment, node: int) -> Call:
    """Takes a node out of service."""
    return call(deployment, "Registry", "retire", node)


def withdraw(deployment: Deployment, node: int) -> Call:
    """Pays a retired node's bond back to its owner."""
    return call(deployment, "Registry", "withdraw", node)


def rotate_key(deployment: Deployment, node: int, key: str, deadline: int, key_signature: bytes) -> Call:
    """Replaces a node's session key."""
    return call(deployment, "Registry", "rotateKey", node, key, deadline, key_signature)


def revoke_key(deployment: Deployment, node: int) -> Call:
    """Ends a node's session key at once."""
    return call(deployment, "Registry", "revokeKey", node)


# Market


def open_run(deployment: Deployment, terms: RunTerms, manifest_root: bytes, uri: str) -> Call:
    """Opens a run."""
    return call(deployment, "Market", "open", terms, manifest_root, uri)


def fund_run(deployment: Deployment, run: int, amount: int) -> Call:
    """Locks the sender's credits in a run's escrow."""
    return call(deployment, "Market", "fund", run, amount)


def close_run(deployment: Deployment, run: int) -> Call:
    """Ends a run: no new rounds."""
    return call(deployment, "Market", "close", run)


def refund_run(deployment: Deployment, run: int, amount: int) -> Call:
    """Takes unreserved escrow of a closed run back."""
    return call(deployment, "Market", "refund", run, amount)


def announce(deployment: Deployment, run: int, terms: RunTerms) -> Call:
    """Announces new terms of a run."""
    return call(deployment, "Market", "announce", run, terms)


def join(deployment: Deployment, run: int, node: int, rules_hash: bytes) -> Call:
    """A node consents to a run's rules."""
    return call(deployment, "Market", "join", run, node, rules_hash)


def leave(deployment: Deployment, run: int, node: int) -> Call:
    """Ends a node's part in new rounds of a run."""
    return call(deployment, "Market", "leave", run, node)


def publish(
    deployment: Deployment, run: int, version: int, manifest_root: bytes, consumed: Sequence[Consumption]
) -> Call:
    """Publishes a checkpoint and the jobs it was trained on."""
    return call(deployment, "Market", "publish", run, version, manifest_root, tuple(consumed))


# Rounds


def open_round(deployment: Deployment, run: int, step: int, policy_version: int, assignments: bytes) -> Call:
    """Lists nodes for the next jobs."""
    return call(deployment, "Rounds", "open", run, step, policy_version, assignments)


def submit(deployment: Deployment, round: int, assignments: bytes, submissions: Sequence[Submission]) -> Call:
    """Submits a batch of signed leaves."""
    return call(deployment, "Rounds", "submit", round, assignments, pack_submissions(submissions))


def close_round(deployment: Deployment, round: int, assignments: bytes) -> Call:
    """Ends the work phase."""
    return call(deployment, "Rounds", "close", round, assignments)


def draw(deployment: Deployment, round: int) -> Call:
    """Seats the committee."""
    return call(deployment, "Rounds", "draw", round)


def commit(deployment: Deployment, round: int, commitment: bytes) -> Call:
    """Commits to a vote."""
    return call(deployment, "Rounds", "commit", round, commitment)


def reveal(
    deployment: Deployment, round: int, accept: int, fraud: int, reasons: bytes, evidence_root: bytes, salt: bytes
) -> Call:
    """Reveals a vote. The last reveal of a round tallies it, so each one gets gas for that."""
    made = call(deployment, "Rounds", "reveal", round, accept, fraud, reasons, evidence_root, salt)
    return replace(made, least_gas=REVEAL_GAS)


def tally(deployment: Deployment, round: int) -> Call:
    """Counts the votes."""
    return call(deployment, "Rounds", "tally", round)


def appeal(deployment: Deployment, round: int, job: int, batch: int, submissions: Sequence[SettledLeaves]) -> Call:
    """Appeals against the verdict on one job; its batch is supplied as for ``settle``."""
    return call(deployment, "Rounds", "appeal", round, job, batch, pack_parts(submissions))


def settle(
    deployment: Deployment, round: int, batch: int, assignments: bytes, submissions: Sequence[SettledLeaves]
) -> Call:
    """Pays and slashes for one batch."""
    return call(deployment, "Rounds", "settle", round, batch, assignments, pack_parts(submissions))


def finish(deployment: Deployment, round: int, assignments: bytes) -> Call:
    """Ends a round once every batch is settled and every appeal decided."""
    return call(deployment, "Rounds", "finish", round, assignments)


def expire(deployment: Deployment, round: int) -> Call:
    """Ends a round without a verdict after the longest time that a round may take."""
    return call(deployment, "Rounds", "expire", round)


def free(deployment: Deployment, round: int, assignments: bytes) -> Call:
    """Frees the nodes of a round that ended void after its close."""
    return call(deployment, "Rounds", "free", round, assignments)


# Traps


def set_traps(
    deployment: Deployment, run: int, root: bytes, leaves: int, bounty: int, first: int, open_by: int
) -> Call:
    """Announces faults that the sender's own nodes will plant in a run, with a deposit."""
    return call(deployment, "Traps", "set", run, root, leaves, bounty, first, open_by)


def open_trap(
    deployment: Deployment, number: int, trap: Trap, proof: Sequence[bytes], round: int, job: int, assignments: bytes
) -> Call:
    """Shows that a fraudulent job was a trap, whose bounty its finders share."""
    return call(deployment, "Traps", "open", number, trap, proof, round, job, assignments)


def open_decoy(deployment: Deployment, number: int, trap: Trap, proof: Sequence[bytes]) -> Call:
    """Shows that a leaf was a decoy, whose share goes back to the setter."""
    return call(deployment, "Traps", "openDecoy", number, trap, proof)


def forfeit_traps(deployment: Deployment, number: int) -> Call:
    """Sends the shares of leaves that were not opened in time to the treasury."""
    return call(deployment, "Traps", "forfeit", number)


# Credits


def buy(deployment: Deployment, amount: int) -> Call:
    """Turns the sender's tokens into credits."""
    return call(deployment, "Credits", "buy", amount)


def redeem(deployment: Deployment, to: str, amount: int) -> Call:
    """Turns the sender's credits into tokens of ``to``."""
    return call(deployment, "Credits", "redeemTo", to, amount)
