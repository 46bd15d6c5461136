"""What owners of nodes do, and what is done with their money."""

from __future__ import annotations

from protocol.chain.structs import Role
from tests.model.chance import Chance
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
from tests.model.rules import Rules
from tests.model.transaction import NOBODY


class NodeRules(Rules):
    """Registry, Credits and Admin."""

    def an_owner_acts(self, chance: Chance) -> None:
        ways = (
            self.register,
            self.rotate_key,
            self.revoke_key_and_perhaps_give_a_new_one,
            self.top_up,
            self.retire,
            self.withdraw,
            self.sweep,
            self.buy_or_redeem,
            self.administer,
            self.administer,
        )
        chance.pick(ways)(chance)

    def register(self, chance: Chance) -> None:
        role = chance.pick((Role.VALIDATOR, Role.WORKER))
        owner = chance.pick([*(JUDGES if role == Role.VALIDATOR else PROVIDERS), STRANGER])
        if chance.rarely():
            role, owner = chance.pick(list(Role)), chance.pick(OWNERS)
        capacity = 1 if role == Role.VALIDATOR and not chance.rarely() else chance.whole(0, 5)
        key, deadline, signature = self._consent(chance, owner, role, capacity)
        self.twins.do(owner, "Registry", "register", role, key, capacity, deadline, signature)

    def rotate_key(self, chance: Chance) -> None:
        node = self._node(chance)
        key, deadline, signature = self._consent(chance, node.owner, node.role, node.capacity)
        owner = self.sender(chance, node.owner)
        self.twins.do(owner, "Registry", "rotateKey", node.number, key, deadline, signature)

    def revoke_key_and_perhaps_give_a_new_one(self, chance: Chance) -> None:
        node = self._node(chance)
        self.twins.do(self.sender(chance, node.owner), "Registry", "revokeKey", node.number)
        if chance.coin():
            self.rotate_key_of(self.model.registry.nodes[node.number])

    def rotate_key_of(self, node: Node) -> None:
        key = self.free_key()
        signature = self.twins.consent(node.owner, key, node.role, node.capacity)
        self.twins.do(node.owner, "Registry", "rotateKey", node.number, key, LONG, signature)

    def top_up(self, chance: Chance) -> None:
        node = self._node(chance)
        amount = chance.pick((100, 1000, 0))
        self.twins.do(chance.pick([node.owner, STRANGER]), "Registry", "topUp", node.number, amount)

    def retire(self, chance: Chance) -> None:
        node = self._node(chance)
        self.twins.do(self.sender(chance, node.owner), "Registry", "retire", node.number)

    def withdraw(self, chance: Chance) -> None:
        leaving = [node for node in self.model.registry.nodes.values() if node.retired_at and not node.withdrawn]
        node = chance.pick(leaving) if leaving else self._node(chance)
        if not leaving:
            self.twins.do(node.owner, "Registry", "retire", node.number)
            node = self.model.registry.nodes[node.number]
        if node.retired_at and not chance.rarely():
            self.moment(chance, node.retired_at + TERMS.registry.unbonding_delay)
        self.twins.do(self.sender(chance, node.owner), "Registry", "withdraw", node.number)
        node = self.model.registry.nodes[node.number]
        if node.retired_at and not node.withdrawn and not node.in_flight:
            self.twins.wait(node.retired_at + TERMS.registry.unbonding_delay)
            self.twins.must(node.owner, "Registry", "withdraw", node.number)

    def sweep(self, chance: Chance) -> None:
        self.twins.do(chance.pick(EVERYBODY), "Registry", "sweep")

    def buy_or_redeem(self, chance: Chance) -> None:
        verb, amount = chance.pick(("buy", "redeem")), chance.pick((50, 200, 0, 10**9))
        earners = [owner for owner in EVERYBODY if self.model.credits.free[owner]]
        owner = chance.pick(earners if verb == "redeem" and not chance.rarely() else EVERYBODY)
        self.twins.do(owner, "Credits", verb, amount)
        if self.model.token.balances[owner] >= 50:
            self.twins.must(owner, "Credits", "buy", 50)
        if self.model.credits.free[owner]:
            self.twins.must(owner, "Credits", "redeem", min(50, self.model.credits.free[owner]))
        to = chance.pick((NOBODY, *EVERYBODY))
        self.twins.do(owner, "Credits", "redeemTo", to, self.model.credits.free[owner] or 50)

    def administer(self, chance: Chance) -> None:
        verb = chance.pick(("unpause" if self.model.admin.paused else "pause", "setTreasury"))
        if chance.rarely():
            verb = chance.pick(("pause", "unpause"))
        if verb == "setTreasury":
            treasury = chance.pick((address_of("second treasury"), TREASURY, NOBODY))
            self.twins.do(self.sender(chance, ADMIN), "Admin", verb, treasury)
            self.twins.must(ADMIN, "Admin", verb, TREASURY)
        else:
            self.twins.do(self.sender(chance, chance.pick((PAUSER, ADMIN))), "Admin", verb)
            if self.model.admin.paused and chance.coin():
                self.twins.must(ADMIN, "Admin", "unpause")

    def _node(self, chance: Chance) -> Node:
        return chance.pick(list(self.model.registry.nodes.values()))

    def _consent(self, chance: Chance, owner: str, role: Role, capacity: int) -> tuple[str, int, bytes]:
        """A key, its deadline and its signature, one of them bad now and then."""
        key, deadline = self.free_key(), LONG
        fault = chance.pick(("used", "late", "last", "forged", "short")) if chance.rarely() else ""
        if fault == "used":
            key = next(iter(KEYS))
        if fault in ("late", "last"):
            deadline = self.twins.now - (fault == "late")
        signer = next(iter(KEYS)) if fault == "forged" else key
        signature = self.twins.consent(owner, signer, role, capacity, deadline)
        return key, deadline, signature[:-1] if fault == "short" else signature
