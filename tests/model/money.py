"""Tokens and credits: one credit is one token held by `Credits`."""

from __future__ import annotations

from collections import Counter

from tests.model.transaction import NOBODY, Refused, Transaction

FAUCET_CAP = 1_000_000 * 10**18


class Token:
    """Balances. Allowances are taken as given: every party approves everything before the model starts."""

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()
        self.dripped: Counter[str] = Counter()

    def drip(self, tx: Transaction, to: str, amount: int) -> None:
        if self.dripped[to] + amount > FAUCET_CAP:
            raise Refused("FaucetExhausted", to, self.dripped[to], amount, FAUCET_CAP)
        self.dripped[to] += amount
        self.balances[to] += amount

    def move(self, source: str, target: str, amount: int) -> None:
        if self.balances[source] < amount:
            raise Refused("ERC20InsufficientBalance", source, self.balances[source], amount)
        self.balances[source] -= amount
        self.balances[target] += amount


class Credits:
    """Free credits of owners, and the sum that runs and appeals hold."""

    def __init__(self, token: Token, address: str, market: str, registry: str) -> None:
        self.token, self.address = token, address
        self.market, self.registry = market, registry
        self.free: Counter[str] = Counter()
        self.locked = 0

    def buy(self, tx: Transaction, amount: int) -> None:
        if amount == 0:
            raise Refused("ZeroAmount")
        self.token.move(tx.sender, self.address, amount)
        self.free[tx.sender] += amount

    def redeem(self, tx: Transaction, amount: int) -> None:
        self.redeem_to(tx, tx.sender, amount)

    def redeem_to(self, tx: Transaction, to: str, amount: int) -> None:
        if to == NOBODY:
            raise Refused("NoReceiver")
        if amount == 0:
            raise Refused("ZeroAmount")
        self._spend(tx.sender, amount)
        self.token.move(self.address, to, amount)

    def lock(self, tx: Transaction, owner: str, run: int, amount: int) -> None:
        self._only_market(tx)
        self._spend(owner, amount)
        self.locked += amount

    def unlock(self, tx: Transaction, owner: str, run: int, amount: int) -> None:
        self._only_market(tx)
        self.locked -= amount
        self.free[owner] += amount

    def earn(self, tx: Transaction, owner: str, run: int, round: int, node: int, amount: int) -> None:
        self._only_market(tx)
        self.locked -= amount
        self.free[owner] += amount

    def grant(self, tx: Transaction, owner: str, round: int, amount: int) -> None:
        """The registry has handed the tokens over already."""
        if tx.sender != self.registry:
            raise Refused("NotRegistry", tx.sender)
        self.free[owner] += amount

    @property
    def supply(self) -> int:
        return sum(self.free.values()) + self.locked

    def _spend(self, owner: str, amount: int) -> None:
        if self.free[owner] < amount:
            raise Refused("CreditTooSmall", owner, self.free[owner], amount)
        self.free[owner] -= amount

    def _only_market(self, tx: Transaction) -> None:
        if tx.sender != self.market:
            raise Refused("NotMarket", tx.sender)
