"""The verbs of providers and requesters: each checks what it needs and returns a plan of its calls.

The command line and the local network share them. A plan is carried out or simulated.
"""

from __future__ import annotations

from protocol.amounts import coin, tokens
from protocol.chain import events
from protocol.chain.structs import Role, Run, RunTerms
from protocol.chain.writing import calls
from protocol.chain.writing.account import Account
from protocol.chain.writing.calls import Call
from protocol.chain.writing.plans import Plan, event_of, plan_of
from protocol.chain.writing.receipts import Receipt
from protocol.errors import Rejected
from protocol.times import clock
from protocol.wire.auth import Signer, node_binding

GET_TOKENS = "get tokens with: assize wallet drip"


def drip(sender: Account, amount: int) -> Plan[Receipt]:
    """Takes ``amount`` token wei from the test network's faucet."""
    return plan_of(sender, calls.drip(sender.chain.deployment, sender.address, amount))


def send_tokens(sender: Account, to: str, amount: int) -> Plan[Receipt]:
    """Sends ``amount`` token wei to an address.

    Raises:
        Rejected: the sender has fewer.
    """
    _check_tokens(sender, amount)
    return plan_of(sender, calls.transfer(sender.chain.deployment, to, amount))


def send_coin(sender: Account, to: str, amount: int) -> Plan[Receipt]:
    """Sends ``amount`` wei of the chain's own coin, which pays for gas.

    Raises:
        Rejected: the sender has less.
    """
    if (have := sender.chain.latest().native_balance(sender.address)) <= amount:
        raise Rejected(f"{sender.address} has {coin(have)}: too little to send {coin(amount)} and pay for gas")
    return plan_of(sender, calls.pay_native(to, amount))


# Nodes


def register_node(sender: Account, key: Signer, role: Role, capacity: int) -> Plan[events.NodeRegistered]:
    """Registers a node: approves the bond, then sends the consent of both keys.

    Args:
        sender: sends for the owner.
        key: the node's session key.
        role: worker or validator.
        capacity: most jobs in flight; 1 for a validator.

    Raises:
        Rejected: the key is already bound, the role does not have this capacity, or the owner cannot pay the bond.
    """
    reader = sender.chain.latest()
    _check_unbound(sender, key)
    if role is Role.VALIDATOR and capacity != 1:
        raise Rejected(f"invalid capacity {capacity} of a validator: expected 1, as each has one seat in a draw")
    need, have = reader.required_bond(role, capacity), reader.balance_of(sender.address)
    if have < need:
        raise Rejected(
            f"bond too small: {sender.address} has {tokens(have)}, a {role.name.lower()} of capacity {capacity} "
            f"needs {tokens(need)}; {GET_TOKENS}"
        )
    deadline, consent = _consent(sender, key, role, capacity)
    register = calls.register(sender.chain.deployment, role, key.address, capacity, deadline, consent)
    return Plan(sender, (*_approval(sender, "Registry", need), register), event_of(events.NodeRegistered))


def contest_slot(sender: Account, key: Signer) -> Plan[events.SlotContested] | None:
    """Registers a validator as a newcomer to the slot with the least bond; returns None while slots are free.

    Raises:
        Rejected: the key is already bound, or the owner cannot pay a quarter more than that bond.
    """
    _check_unbound(sender, key)
    contested = sender.chain.latest().next_contest()
    if contested is None:
        return None
    _, need = contested
    _check_tokens(sender, need)
    deadline, consent = _consent(sender, key, Role.VALIDATOR, 1)
    contest = calls.contest(sender.chain.deployment, key.address, deadline, consent)
    return Plan(sender, (*_approval(sender, "Registry", need), contest), event_of(events.SlotContested))


def _check_unbound(sender: Account, key: Signer) -> None:
    known = sender.chain.latest().node_by_key(key.address)
    if known:
        raise Rejected(f"{key.address} is already the key of node {known}; register another key, or rotate")


def rotate_key(sender: Account, node: int, key: Signer) -> Plan[events.KeyRotated]:
    """Replaces a node's session key, with the consent of the new one. The old key is never valid again.

    Raises:
        Rejected: the sender does not own the node, or the key is its present one.
    """
    known = sender.chain.latest().node(node)
    if known.owner != sender.address:
        raise Rejected(f"node {node} belongs to {known.owner}: only its owner can change its key")
    if known.key == key.address:
        raise Rejected(f"{key.address} is the key of node {node} already")
    deadline, consent = _consent(sender, key, known.role, known.capacity)
    rotate = calls.rotate_key(sender.chain.deployment, node, key.address, deadline, consent)
    return Plan(sender, (rotate,), event_of(events.KeyRotated))


def deposit(sender: Account, node: int, amount: int) -> Plan[Receipt]:
    """Adds ``amount`` token wei to a node's bond.

    Raises:
        Rejected: the sender has fewer tokens.
    """
    _check_tokens(sender, amount)
    top_up = calls.top_up(sender.chain.deployment, node, amount)
    return plan_of(sender, *_approval(sender, "Registry", amount), top_up)


def withdraw(sender: Account, node: int) -> Plan[events.BondWithdrawn]:
    """Withdraws the rest of a retired node's bond to its owner."""
    return Plan(sender, (calls.withdraw(sender.chain.deployment, node),), event_of(events.BondWithdrawn))


# Credits


def buy_credits(sender: Account, amount: int) -> Plan[Receipt]:
    """Turns ``amount`` of the sender's token wei into credits.

    Raises:
        Rejected: the sender has fewer tokens.
    """
    return plan_of(sender, *buying(sender, amount))


def redeem_credits(sender: Account, amount: int, to: str | None = None) -> Plan[Receipt]:
    """Turns ``amount`` of the sender's credits into tokens of ``to``, else of its own.

    Raises:
        Rejected: the sender has fewer credits.
    """
    have = sender.chain.latest().credits_of(sender.address)
    if have < amount:
        raise Rejected(
            f"too few credits: {sender.address} has {tokens(have)} in credits, not {tokens(amount)}; "
            "see: assize credits show"
        )
    return plan_of(sender, calls.redeem(sender.chain.deployment, to or sender.address, amount))


# Runs


def open_run(sender: Account, terms: RunTerms, manifest_root: bytes, uri: str) -> Plan[events.RunOpened]:
    """Opens a run whose version 0 is the model of this manifest; ``uri`` is where its rules are served."""
    return Plan(
        sender, (calls.open_run(sender.chain.deployment, terms, manifest_root, uri),), event_of(events.RunOpened)
    )


def fund_run(sender: Account, run: int, amount: int) -> Plan[Receipt]:
    """Locks ``amount`` credits in a run's escrow, buying missing credits with tokens.

    Raises:
        Rejected: the sender is not the run's requester, or lacks credits and tokens.
    """
    _own_run(sender, run, "fund it")
    missing = amount - sender.chain.latest().credits_of(sender.address)
    bought = buying(sender, missing) if missing > 0 else ()
    return plan_of(sender, *bought, calls.fund_run(sender.chain.deployment, run, amount))


def announce_terms(sender: Account, run: int, terms: RunTerms) -> Plan[events.TermsAnnounced]:
    """Announces new terms of a run, in effect after notice.

    Raises:
        Rejected: the sender is not the run's requester, or the rules are the run's present ones.
    """
    if _own_run(sender, run, "change its terms").terms.rules_hash == terms.rules_hash:
        raise Rejected(f"run {run} has these rules already; new terms need rules that the run never had")
    return Plan(sender, (calls.announce(sender.chain.deployment, run, terms),), event_of(events.TermsAnnounced))


def refund_run(sender: Account, run: int, amount: int) -> Plan[events.RunRefunded]:
    """Takes ``amount`` of a closed run's unreserved escrow back into the requester's credits.

    Raises:
        Rejected: the sender is not the run's requester, the run is not closed, or its escrow holds less.
    """
    present = _own_run(sender, run, "take its escrow back")
    if not present.closed:
        raise Rejected(f"run {run} is not closed; close it first with: assize run close {run}")
    if not 0 < amount <= present.escrow:
        raise Rejected(
            f"the escrow of run {run} holds {tokens(present.escrow)} that are not reserved, not {tokens(amount)}"
        )
    return Plan(sender, (calls.refund_run(sender.chain.deployment, run, amount),), event_of(events.RunRefunded))


def join_run(sender: Account, run: int, node: int, rules_hash: bytes | None = None) -> Plan[Receipt]:
    """Consents to a run's rules for a node of the sender.

    Args:
        sender: sends for the node's owner.
        run: the run to join.
        node: the node that joins.
        rules_hash: the rules consented to; None takes the run's present ones, unread. A validator may also join at
            rules that are announced.

    Raises:
        Rejected: the run has other rules, or the validator left it for its strikes and must wait.
    """
    reader = sender.chain.latest()
    present, announced = reader.run(run).terms.rules_hash, reader.announced(run)[0].rules_hash
    validates = reader.node(node).role is Role.VALIDATOR
    wanted = present if rules_hash is None else rules_hash
    if wanted != present and not (validates and wanted == announced):
        raise Rejected(f"run {run} has the rules 0x{present.hex()}, not 0x{wanted.hex()}; read them before joining")
    strikes, until = reader.strikes(run, node)
    if strikes >= reader.market_terms().max_strikes:
        raise Rejected(f"node {node} left run {run} for its {strikes} strikes; it can join again from {clock(until)}")
    return plan_of(sender, calls.join(sender.chain.deployment, run, node, wanted))


# What the verbs share


def buying(sender: Account, amount: int) -> tuple[Call, ...]:
    """Returns the calls that turn ``amount`` token wei into credits.

    Raises:
        Rejected: the sender has fewer tokens.
    """
    return (*approving(sender, "Credits", amount), calls.buy(sender.chain.deployment, amount))


def approving(sender: Account, contract: str, amount: int) -> tuple[Call, ...]:
    """Returns the call, if any is needed, that lets one of our contracts take ``amount`` of the sender's token wei.

    Raises:
        Rejected: the sender has fewer tokens.
    """
    _check_tokens(sender, amount)
    return _approval(sender, contract, amount)


def _approval(sender: Account, contract: str, amount: int) -> tuple[Call, ...]:
    """Returns the approval of exactly ``amount`` token wei, unless the contract may already take that much."""
    deployment = sender.chain.deployment
    allowed = sender.chain.latest().allowance(sender.address, deployment.address_of(contract))
    return (calls.approve(deployment, contract, amount),) if allowed < amount else ()


def _consent(sender: Account, key: Signer, role: Role, capacity: int) -> tuple[int, bytes]:
    """Returns the unix second at which a session key's consent to serve the sender expires, and its signature."""
    chain = sender.chain
    deadline = chain.head().timestamp + sender.signing_seconds
    binding = node_binding(
        chain.chain_id, chain.deployment.registry, sender.address, key.address, role, capacity, deadline
    )
    return deadline, key.sign_typed(binding)


def _check_tokens(sender: Account, amount: int) -> None:
    have = sender.chain.latest().balance_of(sender.address)
    if have < amount:
        raise Rejected(f"too few tokens: {sender.address} has {tokens(have)}, not {tokens(amount)}; {GET_TOKENS}")


def _own_run(sender: Account, run: int, verb: str) -> Run:
    present = sender.chain.latest().run(run)
    if present.requester != sender.address:
        raise Rejected(f"run {run} belongs to {present.requester}: only its requester can {verb}")
    return present
