"""Edges of ``assize join``: looks at chain and keystores, takes the steps, writes the profile."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.amounts import tokens
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.chain.structs import NEVER, Role
from protocol.chain.writing import actions
from protocol.chain.writing.faucet import give_gas, gives_gas, gives_tokens
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.plans import Plan
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.node.commands.connection import journal_path
from protocol.node.commands.interruption import saying_how_far
from protocol.node.commands.own_keys import placed
from protocol.node.membership import Foothold, JoinStep, Membership, tokens_missing
from protocol.node.profile import PROFILE_VARIABLE, Profile
from protocol.node.profile_edit import set_table
from protocol.node.wallet import KEYSTORE_DIRECTORY_VARIABLE, Wallet
from protocol.times import clock

SETTLING_SECONDS = 120.0
"""Longest wait for transactions that an earlier command sent and did not see mined."""
ACTIVE_SECONDS = 120
"""Activation delays up to this are waited out before the daemon starts."""
IDLE_SECONDS = 60
"""Longest wait for a block after the delay, on a chain that makes one only for a transaction."""
LAG_SECONDS = 30.0
"""Longest wait for an endpoint that does not know the block of the owner's last transaction yet."""
POLL_SECONDS = 0.25
ROUNDS_LOOKED_AT = 32
"""Newest rounds among which one of the run is looked for; an appeal counts as a round of one job."""

_USUAL_STATE = re.compile(r"(worker|validator)-[0-9a-f]{8}")
"""Name of a state folder as ``join`` gives it: the role, and the beginning of the deployment's hash."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Joiner:
    """The parties of a membership: the chain, the owner's sender and the session key."""

    chain: Chain
    sender: Sender
    key: Wallet
    role: Role
    wanted: Membership

    def look(self) -> Foothold:
        """Returns what is there already.

        Raises:
            Rejected: the session key serves another owner or role, or its node is retired.
        """
        reader = reader_from(self.chain, self.sender.newest_block())
        return foothold(self.chain, reader, self.sender.address, self.key.address, self.role, self.wanted)

    def node(self) -> int:
        """Returns the session key's node.

        Raises:
            Unavailable: the chain does not show it, though it was registered.
        """
        return self._registered(self.look())

    def take(self, step: JoinStep) -> str:
        """Takes a step and returns what was done."""
        taken: Mapping[JoinStep, Callable[[], str]] = {
            JoinStep.TAKE_GAS: self._take_gas,
            JoinStep.TAKE_TOKENS: self._take_tokens,
            JoinStep.REGISTER: self._register,
            JoinStep.DEPOSIT: self._deposit,
            JoinStep.SEND_GAS: self._send_gas,
            JoinStep.JOIN_RUN: self._join_run,
        }
        return taken[step]()

    def _take_gas(self) -> str:
        for address in (self.sender.address, self.key.address):
            give_gas(self.chain.rpc, address)
        return "the local chain gave gas to both keys"

    def _take_tokens(self) -> str:
        held = self.look()
        amount = tokens_missing(self.wanted, held) - held.tokens
        self._send(actions.drip(self.sender, amount))
        return f"took {tokens(amount)} from the faucet"

    def _register(self) -> str:
        contest = actions.contest_slot(self.sender, self.key) if self.role is Role.VALIDATOR else None
        if contest is not None:
            made = self._send(contest)
            return (
                f"node {made.newcomer} contests validator slot {made.slot}; `assize validator doctor` says until when"
            )
        registered = self._send(actions.register_node(self.sender, self.key, self.role, self.wanted.capacity))
        return f"registered node {registered.node} with a bond of {tokens(registered.bond)}"

    def _deposit(self) -> str:
        held = self.look()
        amount, node = tokens_missing(self.wanted, held), self._registered(held)
        self._send(actions.deposit(self.sender, node, amount))
        return f"added {tokens(amount)} to the bond of node {node}"

    def _send_gas(self) -> str:
        self._send(actions.send_coin(self.sender, self.key.address, self.wanted.key_gas))
        return f"sent gas to {self.key.address}"

    def _join_run(self) -> str:
        self._send(actions.join_run(self.sender, self.wanted.run, self.node()))
        return f"joined run {self.wanted.run}"

    def _registered(self, held: Foothold) -> int:
        if not held.node:
            raise Unavailable(f"the RPC shows no node of {self.key.address}, which was registered: type this again")
        return held.node

    def _send(self, plan: Plan[Any]) -> Any:
        # A new intent each time: earlier ones were settled before the chain was looked at.
        intent = f"join/{secrets.token_hex(8)}"
        with saying_how_far(self.sender, intent, plan.calls, resumes=True):
            return plan.carry_out(intent)


def reader_from(chain: Chain, block: int, seconds: float = LAG_SECONDS) -> Reader:
    """Returns views of one head that is no older than a block; waits for an endpoint that lags.

    Raises:
        Unavailable: it lags too long.
    """
    deadline = time.monotonic() + seconds
    while (head := chain.head()).number < block:
        if time.monotonic() > deadline:
            raise Unavailable(f"the RPC is at block {head.number} and the last transaction in {block}: type this again")
        time.sleep(POLL_SECONDS)
    return chain.pinned(head)


def foothold(
    chain: Chain, reader: Reader, owner: str | None, key: str | None, role: Role, wanted: Membership
) -> Foothold:
    """Returns what is there already; a key that is not made yet has nothing.

    Raises:
        Rejected: the session key serves another owner or role, or its node is retired.
    """
    node = reader.node_by_key(key) if key else 0
    known = reader.node(node) if node else None
    if known:
        another = owner is not None and known.owner != owner  # None: a keystore that states its address once opened
        if known.role is not role or another or known.retired_at:
            state = "retired" if known.retired_at else f"a {known.role.name.lower()} of {known.owner}"
            raise Rejected(f"the session key {key} is that of node {node}, {state}: name another key with --key")
    rules = reader.run(wanted.run).terms.rules_hash
    return Foothold(
        node=node,
        bond=known.bond if known else 0,
        waits=known is not None and known.active_at == NEVER,
        joined=bool(node) and reader.joined_at(wanted.run, node) == rules,
        tokens=reader.balance_of(owner) if owner else 0,
        owner_gas=reader.native_balance(owner) if owner else 0,
        key_gas=reader.native_balance(key) if key else 0,
        gives_gas=gives_gas(chain.rpc),
        gives_tokens=gives_tokens(chain),
    )


def market_of(chain: Chain, run: int, own: int = 0) -> tuple[int, int]:
    """Returns the capacity of the other workers in a run, and the jobs of its newest round; 0 if there was none.

    Args:
        chain: the deployment.
        run: the run.
        own: the node of the worker that asks, which is none of the others; 0 if it has none.
    """
    reader = chain.latest()
    rules, ids = reader.run(run).terms.rules_hash, range(1, reader.node_count() + 1)
    joined = reader.views("Market", "joinedAt", [(run, node) for node in ids])
    serving = [
        node.capacity
        for number, node, at in zip(ids, reader.nodes(ids), joined, strict=True)
        if number != own and node.role is Role.WORKER and at == rules and not node.retired_at and not node.revoked
    ]
    newest = range(max(reader.round_count() - ROUNDS_LOOKED_AT, 0) + 1, reader.round_count() + 1)
    sizes = [round_.jobs for round_ in reader.rounds(newest) if round_.run == run and round_.jobs > 1]
    return sum(serving), sizes[-1] if sizes else 0


@contextmanager
def settled_sender(chain: Chain, owner: Wallet, fees: Fees) -> Iterator[Sender]:
    """Yields the owner's sender once everything is mined that an earlier command sent for this key.

    Raises:
        Unavailable: it is not mined in time.
    """
    sender = Sender(chain, owner, journal_path(chain, owner.address), fees)
    try:
        deadline = time.monotonic() + SETTLING_SECONDS
        while pending := sender.unfinished():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"an earlier transaction, {pending[0].call.description}, is not mined after "
                    f"{SETTLING_SECONDS:.0f} s; type this again once it is"
                )
            time.sleep(POLL_SECONDS)
            sender.reconcile()
        yield sender
    finally:
        sender.close()


def write_role(path: Path, role: str, values: Mapping[str, Any], wallet: Mapping[str, Any]) -> Profile:
    """Writes a role's table, and the wallet's keys that the profile lacks."""
    if directory := os.environ.get(KEYSTORE_DIRECTORY_VARIABLE):
        values = {**values, "keystore_directory": Path(directory)}
    if placed(Profile.read(path).keystore or wallet["keystore"]) == wallet["keystore"]:
        set_table(path, "wallet", wallet, replace=False)
    return set_table(path, role, values)


def own_state_dir(table: Mapping[str, Any]) -> Path | None:
    """Returns the state folder that a role's table names; None where it is one that ``join`` gave an earlier chain."""
    place: Path | None = table.get("state_dir")
    return None if place is None or _USUAL_STATE.fullmatch(place.name) else place


def refuse_another(profile: Profile, role: str, values: Mapping[str, Any]) -> None:
    """Refuses to overwrite the settings of another node in a profile.

    Raises:
        Misconfigured: the table is of another network, run or key.
    """
    there = profile.table(role)
    for name in ("network", "run", "keystore"):
        if name in there and name in values and placed(str(there[name])) != str(values[name]):
            raise Misconfigured(
                f"{profile.path} has a {role} with {name} {there[name]}, not {values[name]}: name another profile with "
                f"the variable {PROFILE_VARIABLE}, or remove [{role}] from this one"
            )


def waiting_for_slot(chain: Chain, node: int) -> str | None:
    """Returns a sentence about a node that waits for a validator slot; None about any other."""
    reader = chain.latest()
    known = reader.node(node)
    if known.active_at != NEVER:
        return None
    _, until = reader.contest(known.slot)
    return (
        f"node {node} waits for slot {known.slot}: its daemon takes it from {clock(until)} on, unless the holder "
        "matches the bond; once it has the slot, type this again, which adds the margin and consents to the run's rules"
    )


def wait_until_active(chain: Chain, node: int, say: Say) -> bool:
    """Waits for a short activation delay; returns whether the chain's newest block has passed it.

    The contracts count the delay in the chain's time, which stands still between the blocks of an idle chain.
    """
    active_at = chain.latest().node(node).active_at
    now = int(time.time())
    if active_at > chain.head().timestamp and active_at - now <= ACTIVE_SECONDS:
        say(f"waits until node {node} is active")
        last = max(active_at, now) + IDLE_SECONDS
        while chain.head().timestamp < active_at and time.time() < last:
            time.sleep(POLL_SECONDS)
    return chain.head().timestamp >= active_at
