"""Nodes, their keys and their bonds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.chain.structs import NEVER, RegistryTerms, Role
from protocol.errors import Rejected
from protocol.wire import auth
from tests.model.admin import Admin
from tests.model.money import Credits, Token
from tests.model.round import listings
from tests.model.transaction import NOBODY, Refused, Transaction

if TYPE_CHECKING:
    from tests.model.market import Market

MAX_SLOTS = 256


TURNS = 16
"""Slots that may be contested, or have passed within an unbonding delay."""


@dataclass(slots=True)
class Waiting:
    """Who waits for a slot, and until when its holder may match."""

    newcomer: int
    until: int


@dataclass(slots=True)
class Node:
    """One node; ``key`` is the zero address while it has none, ``retired_at`` 0 while in service."""

    number: int
    owner: str
    role: Role
    capacity: int
    key: str
    slot: int
    active_at: int
    bond: int
    in_flight: int = 0
    retired_at: int = 0
    revoked: bool = False
    withdrawn: bool = False


class Registry:
    """All nodes ever registered, and the slots of those that validate."""

    market: Market

    def __init__(
        self, token: Token, admin: Admin, credits: Credits, address: str, rounds: str, chain: int, terms: RegistryTerms
    ) -> None:
        self.token, self.admin, self.credits = token, admin, credits
        self.address, self.rounds, self.chain, self.terms = address, rounds, chain, terms
        self.nodes: dict[int, Node] = {}
        self.slots: list[int] = []
        """Node at each slot ever taken; 0 where it is free again."""
        self.before: dict[int, tuple[int, int]] = {}
        """By slot: an earlier holder that was displaced, and the last moment of the rounds that may draw it."""
        self.contests: dict[int, Waiting] = {}
        """By slot."""
        self.passed: list[int] = []
        """When slots passed to newcomers."""
        self.roles: dict[str, Role] = {}
        """An owner's role, for life."""
        self.bound: dict[str, int] = {}
        """Every key ever bound, and to which node."""
        self.pot = 0
        """Slashed and neither swept nor awarded."""

    # Verbs of anyone and of owners

    def register(self, tx: Transaction, role: int, key: str, capacity: int, deadline: int, signature: bytes) -> None:
        self._check_kind(tx.sender, Role(role), capacity)
        self._check_key(tx, tx.sender, key, role, capacity, deadline, signature)
        slot = self._free_slot() if role == Role.VALIDATOR else 0
        number, bond = len(self.nodes) + 1, self.required_bond(Role(role), capacity)
        self.token.move(tx.sender, self.address, bond)
        self.nodes[number] = Node(
            number, tx.sender, Role(role), capacity, key, slot, tx.now + self.terms.activation_delay, bond
        )
        self.roles[tx.sender] = Role(role)
        self.bound[key] = number
        if role == Role.VALIDATOR:
            self.slots[slot : slot + 1] = [number]
            self.before.pop(slot, None)

    def contest(self, tx: Transaction, key: str, deadline: int, signature: bytes) -> None:
        self._check_kind(tx.sender, Role.VALIDATOR, 1)
        self._check_key(tx, tx.sender, key, Role.VALIDATOR, 1, deadline, signature)
        slot, bond = self.next_contest()
        recent = sum(tx.now < passed + self.terms.unbonding_delay for passed in self.passed)
        if recent + len(self.contests) >= TURNS:
            raise Refused("TooManyContests")
        self.token.move(tx.sender, self.address, bond)
        number = len(self.nodes) + 1
        self.nodes[number] = Node(number, tx.sender, Role.VALIDATOR, 1, key, slot, NEVER, bond)
        self.roles[tx.sender] = Role.VALIDATOR
        self.bound[key] = number
        self.contests[slot] = Waiting(number, tx.now + self.terms.activation_delay)

    def next_contest(self) -> tuple[int, int]:
        if len(self.slots) < MAX_SLOTS or 0 in self.slots:
            raise Refused("SlotsFree")
        bonds = {slot: self.nodes[node].bond for slot, node in enumerate(self.slots) if slot not in self.contests}
        slot = min(bonds, key=lambda slot: (bonds[slot], slot))
        return slot, max(self.terms.validator_bond, bonds[slot] + -(-bonds[slot] // 4))

    def displace(self, tx: Transaction, newcomer: int) -> None:
        entering = self.known(newcomer)
        contest = self.contests.get(entering.slot)
        if contest is None or contest.newcomer != newcomer:
            raise Refused("NotWaiting", newcomer)
        if tx.now < contest.until:
            raise Refused("StillMatchable", newcomer, contest.until)
        slot = entering.slot
        leaving, last = self.nodes[self.slots[slot]], tx.now + self.market.terms.max_round_seconds
        never_drawn = slot in self.before and tx.now < leaving.active_at
        self.before[slot] = self.before[slot][0] if never_drawn else leaving.number, last
        leaving.retired_at = leaving.retired_at or tx.now
        entering.active_at = last + 1
        self.slots[slot] = newcomer
        self.passed.append(tx.now)
        del self.contests[slot]

    def top_up(self, tx: Transaction, node: int, amount: int) -> None:
        if amount == 0:
            raise Refused("ZeroAmount")
        topped = self.known(node)
        if topped.retired_at:
            raise Refused("AlreadyRetired", node)
        if topped.active_at == NEVER:
            raise Refused("WaitsForSlot", node)
        self.token.move(tx.sender, self.address, amount)
        topped.bond += amount
        contest = self.contests.get(topped.slot) if self.holds(topped) else None
        if contest and tx.now < contest.until and topped.bond >= self.nodes[contest.newcomer].bond:
            self.nodes[contest.newcomer].retired_at = tx.now
            del self.contests[topped.slot]

    def retire(self, tx: Transaction, node: int) -> None:
        retired = self._owned(tx, node)
        if retired.retired_at:
            raise Refused("AlreadyRetired", node)
        if retired.active_at == NEVER:
            raise Refused("WaitsForSlot", node)
        retired.retired_at = tx.now

    def withdraw(self, tx: Transaction, node: int) -> None:
        leaving = self._owned(tx, node)
        if not leaving.retired_at:
            raise Refused("NotRetired", node)
        self._check_present(leaving)
        free_at = leaving.retired_at + (leaving.active_at != NEVER) * self.terms.unbonding_delay
        if tx.now < free_at or leaving.in_flight:
            raise Refused("StillBonded", node, free_at, leaving.in_flight)
        self.token.move(self.address, leaving.owner, leaving.bond)
        leaving.bond, leaving.key, leaving.withdrawn = 0, NOBODY, True
        if self.holds(leaving) and leaving.slot not in self.contests:
            self.slots[leaving.slot] = 0
            self.before.pop(leaving.slot, None)

    def rotate_key(self, tx: Transaction, node: int, key: str, deadline: int, signature: bytes) -> None:
        rotated = self._owned(tx, node)
        self._check_present(rotated)
        self._check_key(tx, rotated.owner, key, rotated.role, rotated.capacity, deadline, signature)
        self.bound[key] = node
        rotated.key, rotated.revoked = key, False

    def revoke_key(self, tx: Transaction, node: int) -> None:
        revoked = self._owned(tx, node)
        self._check_present(revoked)
        if revoked.revoked:
            raise Refused("AlreadyRevoked", node)
        revoked.key, revoked.revoked = NOBODY, True

    def sweep(self, tx: Transaction) -> None:
        if self.pot == 0:
            raise Refused("ZeroAmount")
        self.token.move(self.address, self.admin.treasury, self.pot)
        self.pot = 0

    # Verbs of Rounds

    def reserve_jobs(self, tx: Transaction, assignments: bytes) -> int:
        """Returns how many jobs are listed."""
        self._only_rounds(tx)
        for node, jobs in listings(assignments):
            listed = self.known(node)
            if listed.role != Role.WORKER or not self.listable(listed, tx.now):
                raise Refused("NotListable", node)
            if listed.in_flight + jobs > listed.capacity:
                raise Refused("OverCapacity", node, listed.in_flight + jobs, listed.capacity)
            listed.in_flight += jobs
        return sum(jobs for _, jobs in listings(assignments))

    def free_jobs(self, tx: Transaction, assignments: bytes) -> None:
        self._only_rounds(tx)
        for node, jobs in listings(assignments):
            self.known(node).in_flight -= jobs

    def slash(self, tx: Transaction, node: int, round: int, cause: int, amount: int) -> int:
        self._only_rounds(tx)
        slashed = self.known(node)
        taken = min(amount, slashed.bond)
        slashed.bond -= taken
        self.pot += taken
        return taken

    def award(self, tx: Transaction, owner: str, round: int, amount: int) -> None:
        self._only_rounds(tx)
        self.pot -= amount
        self.token.move(self.address, self.credits.address, amount)
        self.credits.grant(tx.by(self.address), owner, round, amount)

    # What others ask

    def required_bond(self, role: Role, capacity: int) -> int:
        return self.terms.validator_bond if role == Role.VALIDATOR else self.terms.bond_per_job * capacity

    def listable(self, node: Node, now: int) -> bool:
        in_service = not node.retired_at and not node.revoked
        return in_service and now >= node.active_at and node.bond >= self.required_bond(node.role, node.capacity)

    def holds(self, node: Node) -> bool:
        return node.role == Role.VALIDATOR and self.slots[node.slot] == node.number

    def seated(self, slot: int, now: int) -> int:
        """Whom a draw seats at a slot."""
        before, last = self.before.get(slot, (0, 0))
        return before if now <= last else self.slots[slot]

    def eligible(self, now: int) -> set[int]:
        """Slots whose validator may be drawn."""
        return {slot for slot, node in enumerate(self.slots) if node and self.listable(self.nodes[node], now)}

    def node_by_key(self, key: str) -> int:
        return next((node.number for node in self.nodes.values() if node.key == key != NOBODY), 0)

    def known(self, node: int) -> Node:
        if node not in self.nodes:
            raise Refused("UnknownNode", node)
        return self.nodes[node]

    # Refusals

    def _owned(self, tx: Transaction, node: int) -> Node:
        owned = self.known(node)
        if owned.owner != tx.sender:
            raise Refused("NotOwner", node, owned.owner, tx.sender)
        return owned

    def _check_present(self, node: Node) -> None:
        if node.withdrawn:
            raise Refused("AlreadyWithdrawn", node.number)

    def _only_rounds(self, tx: Transaction) -> None:
        if tx.sender != self.rounds:
            raise Refused("NotRounds", tx.sender)

    def _check_kind(self, owner: str, role: Role, capacity: int) -> None:
        if role == Role.NONE:
            raise Refused("UnknownRole")
        if capacity == 0:
            raise Refused("ZeroCapacity")
        if role == Role.VALIDATOR and capacity != 1:
            raise Refused("NotOneTicket", capacity)
        present = self.roles.get(owner, role)
        if present != role:
            raise Refused("OwnerHasOtherRole", owner, present)

    def _check_key(
        self, tx: Transaction, owner: str, key: str, role: int, capacity: int, deadline: int, signature: bytes
    ) -> None:
        if tx.now > deadline:
            raise Refused("SignatureExpired", deadline, tx.now)
        if key in self.bound:
            raise Refused("KeyInUse", key, self.bound[key])
        message = auth.node_binding(self.chain, self.address, owner, key, int(role), capacity, deadline)
        recovered = signer_of(message, signature)
        if recovered == NOBODY or recovered != key:
            raise Refused("BadKeySignature", recovered, key)

    def _free_slot(self) -> int:
        free = [slot for slot, node in enumerate(self.slots) if not node]
        if not free and len(self.slots) == MAX_SLOTS:
            raise Refused("NoFreeSlot")
        return free[0] if free else len(self.slots)


def signer_of(message: auth.TypedData, signature: bytes) -> str:
    """Whose key signed; the zero address for what is no signature."""
    try:
        return auth.recover(message, signature)
    except Rejected:
        return NOBODY
