"""What owners of nodes do, and what is done with their money."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from protocol.chain.structs import Role
from tests.model.parties import (
    ADMIN,
    EVERYBODY,
    JUDGES,
    KEYS,
    LONG,
    OWNERS,
    PAUSER,
    PROVIDERS,
    STRANGER,
    TERMS,
    TREASURY,
    address_of,
)
from tests.model.registry import Node
from tests.model.rules import Data, Rules
from tests.model.transaction import NOBODY

DATA = st.data()


class NodeRules(Rules):
    """Registry, Credits and Admin."""

    @rule(data=DATA)
    def register(self, data: Data) -> None:
        role = self.pick(data, (Role.VALIDATOR, Role.WORKER))
        owner = self.pick(data, [*(JUDGES if role == Role.VALIDATOR else PROVIDERS), STRANGER])
        if self.rarely(data):
            role, owner = self.pick(data, list(Role)), self.pick(data, OWNERS)
        capacity = 1 if role == Role.VALIDATOR and not self.rarely(data) else data.draw(st.integers(0, 5))
        key, deadline, signature = self._consent(data, owner, role, capacity)
        self.twins.do(owner, "Registry", "register", role, key, capacity, deadline, signature)

    @rule(data=DATA)
    def rotate_key(self, data: Data) -> None:
        node = self._node(data)
        key, deadline, signature = self._consent(data, node.owner, node.role, node.capacity)
        owner = self.sender(data, node.owner)
        self.twins.do(owner, "Registry", "rotateKey", node.number, key, deadline, signature)

    @rule(data=DATA)
    def revoke_key_and_perhaps_give_a_new_one(self, data: Data) -> None:
        node = self._node(data)
        self.twins.do(self.sender(data, node.owner), "Registry", "revokeKey", node.number)
        if data.draw(st.booleans()):
            self.rotate_key_of(self.model.registry.nodes[node.number])

    def rotate_key_of(self, node: Node) -> None:
        key = self.free_key()
        signature = self.twins.consent(node.owner, key, node.role, node.capacity)
        self.twins.do(node.owner, "Registry", "rotateKey", node.number, key, LONG, signature)

    @rule(data=DATA)
    def top_up(self, data: Data) -> None:
        node = self._node(data)
        amount = self.pick(data, (100, 1000, 0))
        self.twins.do(self.pick(data, [node.owner, STRANGER]), "Registry", "topUp", node.number, amount)

    @rule(data=DATA)
    def retire(self, data: Data) -> None:
        node = self._node(data)
        self.twins.do(self.sender(data, node.owner), "Registry", "retire", node.number)

    @rule(data=DATA)
    def withdraw(self, data: Data) -> None:
        leaving = [node for node in self.model.registry.nodes.values() if node.retired_at and not node.withdrawn]
        node = self.pick(data, leaving) if leaving else self._node(data)
        if node.retired_at and not self.rarely(data):
            self.moment(data, node.retired_at + TERMS.registry.unbonding_delay)
        self.twins.do(self.sender(data, node.owner), "Registry", "withdraw", node.number)

    @rule(data=DATA)
    def sweep(self, data: Data) -> None:
        self.twins.do(self.pick(data, EVERYBODY), "Registry", "sweep")

    @rule(data=DATA, owner=st.sampled_from(EVERYBODY), amount=st.sampled_from((50, 200, 0, 10**9)))
    def buy_or_redeem(self, data: Data, owner: str, amount: int) -> None:
        self.twins.do(owner, "Credits", self.pick(data, ("buy", "redeem")), amount)

    @rule(data=DATA)
    def administer(self, data: Data) -> None:
        verb = self.pick(data, ("unpause", "pause", "setTreasury"))
        if verb == "setTreasury":
            treasury = self.pick(data, (address_of("second treasury"), TREASURY, NOBODY))
            self.twins.do(self.sender(data, ADMIN), "Admin", verb, treasury)
        else:
            self.twins.do(self.sender(data, self.pick(data, (PAUSER, ADMIN))), "Admin", verb)

    def _node(self, data: Data) -> Node:
        return self.pick(data, list(self.model.registry.nodes.values()))

    def _consent(self, data: Data, owner: str, role: Role, capacity: int) -> tuple[str, int, bytes]:
        """A key, its deadline and its signature, one of them bad now and then."""
        key, deadline = self.free_key(), LONG
        fault = self.pick(data, ("used", "late", "last", "forged", "short")) if self.rarely(data) else ""
        if fault == "used":
            key = next(iter(KEYS))
        if fault in ("late", "last"):
            deadline = self.twins.now - (fault == "late")
        signer = next(iter(KEYS)) if fault == "forged" else key
        signature = self.twins.consent(owner, signer, role, capacity, deadline)
        return key, deadline, signature[:-1] if fault == "short" else signature
