"""What providers and requesters do, each from start to finish: checks first, then transactions, then the answer.

The command line and the local network go through these functions. ``intent`` names what is meant to happen once: the
same one again goes on where it stopped (see ``sender``).
"""

from __future__ import annotations

from typing import TypeVar

from protocol.chain.events import (
    BondWithdrawn,
    Event,
    KeyRotated,
    NodeRegistered,
    RunOpened,
    RunRefunded,
    TermsAnnounced,
)
from protocol.chain.reading.contracts import Reader
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing import calls
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.wire.auth import Signer, node_binding

BINDING_SECONDS = 3600
"""How long a node key's signature may be used to register it."""

GET_TOKENS = "get tokens with: assize wallet drip"

E = TypeVar("E", bound=Event)


def event_in(receipt: Receipt, kind: type[E]) -> E:
    """The one event of this kind in a receipt.

    Raises:
        Rejected: there is none: the transaction did something else.
    """
    for log in receipt.logs:
        if isinstance(log.event, kind):
            return log.event
    raise Rejected(f"transaction 0x{receipt.tx_hash.hex()} emitted no {kind.__name__}")


def drip(sender: Sender, amount: int, intent: str, to: str | None = None) -> Receipt:
    """Takes ``amount`` token wei from the test network's faucet, for oneself or ``to``."""
    return sender.send(intent, calls.drip(sender.chain.deployment, to or sender.address, amount))


def binding_call(sender: Sender, key: Signer, role: Role, capacity: int) -> calls.Call:
    """The registration of a node of the sender, with the consent of its session key."""
    chain = sender.chain
    deadline = chain.head().timestamp + BINDING_SECONDS
    binding = node_binding(
        chain.chain_id, chain.deployment.registry, sender.address, key.address, role, capacity, deadline
    )
    return calls.register(chain.deployment, role, key.address, capacity, deadline, key.sign_typed(binding))


def rotation_call(sender: Sender, key: Signer, node: int) -> calls.Call:
    """The change of a node's session key, with the consent of the new one.

    Raises:
        Rejected: the node is not the sender's, or the key was bound before.
    """
    chain, known = sender.chain, sender.chain.latest().node(node)
    if known.owner != sender.address:
        raise Rejected(f"node {node} is {known.owner}'s: only its owner can change its key")
    if known.key == key.address:
        raise Rejected(f"{key.address} is the key of node {node} already")
    deadline = chain.head().timestamp + BINDING_SECONDS
    binding = node_binding(
        chain.chain_id, chain.deployment.registry, sender.address, key.address, known.role, known.capacity, deadline
    )
    return calls.rotate_key(chain.deployment, node, key.address, deadline, key.sign_typed(binding))


def rotate_key(sender: Sender, node: int, key: Signer, intent: str) -> KeyRotated:
    """Gives a node of the sender a new session key; the old one, revoked or not, never counts again.

    Raises:
        Rejected: see ``rotation_call``, or the registry refuses (``Reverted``): a key is bound once.
    """
    return event_in(sender.send(intent, rotation_call(sender, key, node)), KeyRotated)


def check_bond(reader: Reader, owner: str, role: Role, capacity: int) -> int:
    """The bond in token wei that a node of this role and capacity takes.

    Raises:
        Rejected: the owner has not so much.
    """
    need, have = reader.required_bond(role, capacity), reader.balance_of(owner)
    if have < need:
        raise Rejected(
            f"bond too small: {owner} has {have} token wei, a {role.name.lower()} of capacity {capacity} needs {need}; "
            f"{GET_TOKENS}"
        )
    return need


def register_node(sender: Sender, key: Signer, role: Role, capacity: int, intent: str) -> NodeRegistered:
    """Registers a node of the sender: approves the bond, and sends both keys' consent.

    Args:
        sender: the owner's.
        key: the node's session key.
        capacity: most jobs in flight; 1 for a validator.

    Raises:
        Rejected: too little bond, or the registry refuses (``Reverted``).
    """
    reader = sender.chain.latest()
    known = reader.node_by_key(key.address)
    if known:
        raise Rejected(f"{key.address} is already the key of node {known}; register another key, or rotate")
    need = check_bond(reader, sender.address, role, capacity)
    _allow(sender, "Registry", need, intent)
    return event_in(sender.send(intent, binding_call(sender, key, role, capacity)), NodeRegistered)


def deposit(sender: Sender, node: int, amount: int, intent: str) -> Receipt:
    """Adds ``amount`` token wei to a node's bond.

    Raises:
        Rejected: too few tokens, or no such node.
    """
    have = sender.chain.latest().balance_of(sender.address)
    if have < amount:
        raise Rejected(f"{sender.address} has {have} token wei, not {amount}; {GET_TOKENS}")
    _allow(sender, "Registry", amount, intent)
    return sender.send(intent, calls.top_up(sender.chain.deployment, node, amount))


def withdraw(sender: Sender, node: int, intent: str) -> BondWithdrawn:
    """Pays what is left of a retired node's bond back to its owner."""
    return event_in(sender.send(intent, calls.withdraw(sender.chain.deployment, node)), BondWithdrawn)


def buy_credits(sender: Sender, amount: int, intent: str) -> Receipt:
    """Turns ``amount`` of the sender's token wei into credits.

    Raises:
        Rejected: too few tokens.
    """
    have = sender.chain.latest().balance_of(sender.address)
    if have < amount:
        raise Rejected(f"{sender.address} has {have} token wei, not {amount}; {GET_TOKENS}")
    _allow(sender, "Credits", amount, intent)
    return sender.send(intent, calls.buy(sender.chain.deployment, amount))


def redeem_credits(sender: Sender, amount: int, intent: str) -> Receipt:
    """Turns ``amount`` of the sender's credits into tokens.

    Raises:
        Rejected: too few credits.
    """
    have = sender.chain.latest().credits_of(sender.address)
    if have < amount:
        raise Rejected(f"{sender.address} has {have} credits, not {amount}")
    return sender.send(intent, calls.redeem(sender.chain.deployment, amount))


def open_run(sender: Sender, terms: RunTerms, manifest_root: bytes, uri: str, intent: str) -> RunOpened:
    """Opens a run whose version 0 is the model of this manifest; ``uri`` says where its rules are served."""
    call = calls.open_run(sender.chain.deployment, terms, manifest_root, uri)
    return event_in(sender.send(intent, call), RunOpened)


def fund_run(sender: Sender, run: int, amount: int, intent: str) -> Receipt:
    """Locks ``amount`` credits in a run's escrow; what credits are missing is bought with tokens.

    Raises:
        Rejected: too few credits and tokens together, or not the run's requester.
    """
    reader = sender.chain.latest()
    requester = reader.run(run).requester
    if requester != sender.address:
        raise Rejected(f"run {run} is {requester}'s: only its requester can fund it")
    missing = amount - reader.credits_of(sender.address)
    if missing > 0:
        buy_credits(sender, missing, f"{intent}/buy")
    return sender.send(intent, calls.fund_run(sender.chain.deployment, run, amount))


def announce_terms(sender: Sender, run: int, terms: RunTerms, intent: str) -> TermsAnnounced:
    """Announces new terms of a run of the sender's, in effect after notice.

    Raises:
        Rejected: not the run's requester, or the same rules: every node consents anew, at rules the run never had.
    """
    present = sender.chain.latest().run(run)
    if present.requester != sender.address:
        raise Rejected(f"run {run} is {present.requester}'s: only its requester can change its terms")
    if present.terms.rules_hash == terms.rules_hash:
        raise Rejected(f"run {run} has these very rules: new terms take rules the run never had")
    return event_in(sender.send(intent, calls.announce(sender.chain.deployment, run, terms)), TermsAnnounced)


def refund_run(sender: Sender, run: int, amount: int | None, intent: str) -> RunRefunded:
    """Takes unreserved escrow of a closed run back into the requester's credits; None takes all of it.

    Raises:
        Rejected: not the run's requester, not closed, or the escrow holds less.
    """
    present = sender.chain.latest().run(run)
    if present.requester != sender.address:
        raise Rejected(f"run {run} is {present.requester}'s: only its requester can take its escrow back")
    if not present.closed:
        raise Rejected(f"run {run} is not closed; close it first with: assize run close {run}")
    wanted = present.escrow if amount is None else amount
    if not 0 < wanted <= present.escrow:
        raise Rejected(f"the escrow of run {run} holds {present.escrow} credits that are not reserved, not {wanted}")
    return event_in(sender.send(intent, calls.refund_run(sender.chain.deployment, run, wanted)), RunRefunded)


def join_run(sender: Sender, run: int, node: int, intent: str, rules_hash: bytes | None = None) -> Receipt:
    """Consents, for a node of the sender, to a run's rules.

    Args:
        rules_hash: the rules consented to; None takes the run's present ones, unread.

    Raises:
        Rejected: the run's rules are others, or the node is not the sender's.
    """
    present = sender.chain.latest().run(run).terms.rules_hash
    if rules_hash is not None and rules_hash != present:
        raise Rejected(f"run {run} has the rules 0x{present.hex()}, not 0x{rules_hash.hex()}; read them before joining")
    return sender.send(intent, calls.join(sender.chain.deployment, run, node, present))


def _allow(sender: Sender, contract: str, amount: int, intent: str) -> None:
    """Lets a contract take exactly what the next call needs, where it may not already."""
    approval = missing_approval(sender, contract, amount)
    if approval is not None:
        sender.send(f"{intent}/approve", approval)


def missing_approval(sender: Sender, contract: str, amount: int) -> calls.Call | None:
    """The approval needed before the contract can take ``amount`` token wei; None where it may already."""
    deployment = sender.chain.deployment
    allowed = sender.chain.latest().allowance(sender.address, deployment.address_of(contract))
    return calls.approve(deployment, contract, amount) if allowed < amount else None
