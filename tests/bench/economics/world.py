"""The reference model with a clock, a cast, and what no chain shows: how good work is, and who can read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from random import Random
from typing import Any

from eth_utils.crypto import keccak

from protocol.chain.deployment import Deployment
from protocol.chain.structs import Role, RunTerms, Verdict
from protocol.node.wallet import Wallet
from protocol.wire import auth
from tests.bench.economics.terms import MARGIN, PROTOCOL, RUN, TOKEN, VALIDATORS, WORKERS
from tests.model.chain import HISTORY_WINDOW
from tests.model.money import Credits
from tests.model.parties import ADMIN, COORDINATOR, LONG, REQUESTER, TRAINER, TREASURY, address_of
from tests.model.protocol import Protocol
from tests.model.registry import Node
from tests.model.transaction import NO_HASH, Refused, Transaction

JURORS = [address_of(f"owner of validator {i}") for i in range(VALIDATORS)]
PROVIDERS = [address_of(f"owner of worker {i}") for i in range(WORKERS)]
WATCHER = address_of("watcher")
CAST = frozenset([*JURORS, *PROVIDERS])
OUTSIDER = PROVIDERS[-1]
"""Cheats now and then whatever strategy is played; neither honest nor of the holder."""

PURSE = 100_000 * TOKEN
CAPACITY = 16
AT = Deployment(
    chain_id=31337,
    start_block=0,
    start_hash=NO_HASH,
    token=address_of("contract token"),
    admin=address_of("contract admin"),
    registry=address_of("contract registry"),
    market=address_of("contract market"),
    rounds=address_of("contract rounds"),
    credits=address_of("contract credits"),
    traps=address_of("contract traps"),
)


class Quality(Enum):
    """What a job's work is worth to a juror that reads it."""

    GOOD = "good"
    FRAUD = "fraud"
    AT_THE_BOUND = "at the bound"
    """Made so that honest jurors' own rounding decides between accepted and void."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Credits that somebody came by: ``pay`` and ``fee`` from runs, ``award`` from contradicted jurors."""

    kind: str
    owner: str
    amount: int


class TracedCredits(Credits):
    """Notes who earns what for what."""

    def __init__(self, plain: Credits, roles: dict[str, Role]) -> None:
        super().__init__(plain.token, plain.address, plain.market, plain.registry)
        self.roles = roles
        self.flows: list[Flow] = []

    def earn(self, tx: Transaction, owner: str, run: int, round: int, node: int, amount: int) -> None:
        super().earn(tx, owner, run, round, node, amount)
        self.flows.append(Flow("fee" if self.roles[owner] == Role.VALIDATOR else "pay", owner, amount))

    def grant(self, tx: Transaction, owner: str, round: int, amount: int) -> None:
        super().grant(tx, owner, round, amount)
        self.flows.append(Flow("award", owner, amount))


class World:
    """One history. Calls come one a second, each in a block of its own.

    Args:
        seed: what draws, qualities and choices follow from.
        held: owners that act for the strategy.
        story: takes down every call.
        start: state, time and block to begin with; by default the market in service.
    """

    def __init__(
        self,
        seed: int,
        held: Iterable[str] = (),
        story: list[str] | None = None,
        start: tuple[bytes, int, int] | None = None,
    ) -> None:
        self.seed, self.held, self.story = seed, frozenset(held), story
        self.random = Random(f"history {seed}")
        saved, self.now, self.block = start or _start()
        self.protocol = Protocol.restored(saved)
        self.works: dict[tuple[int, int], Quality] = {}
        self.hidden: set[tuple[int, int]] = set()
        """Jobs whose bytes somebody was refused."""
        self.checks: Counter[str] = Counter()
        """Jobs read, by owner of the reader."""
        self.seats: Counter[str] = Counter()
        """Seats had, by owner."""
        self.discarded: Counter[int] = Counter()
        """Blocks that a producer threw away, by number."""
        self.captured = False
        """Whether held seats were a majority of some committee drawn so far."""
        self.refused_newcomers = 0

    # Calls

    def do(self, sender: str, contract: str, verb: str, *arguments: Any) -> None:
        """A call that nothing may refuse."""
        self._note(sender, contract, verb, arguments)
        try:
            getattr(getattr(self.protocol, contract), verb)(self._transaction(sender), *arguments)
        except Refused as refused:
            raise AssertionError(f"seed {self.seed}: {contract}.{verb} refused: {refused}") from refused

    def attempt(self, sender: str, contract: str, verb: str, *arguments: Any) -> Refused | None:
        """A call that may be refused; then nothing changed."""
        self._note(sender, contract, verb, arguments)
        refused = self.protocol.call(self._transaction(sender), contract, verb, *arguments)
        if refused and self.story is not None:
            self.story[-1] += f" -> {refused.name}"
        return refused

    def wait(self, until: int) -> None:
        self.now = max(self.now, until - 1)

    def _transaction(self, sender: str) -> Transaction:
        self.now, self.block = self.now + 1, self.block + 1
        return Transaction(sender, self.now, self.block, HISTORY_WINDOW, self.hash_of)

    def hash_of(self, block: int) -> bytes:
        return keccak(text=f"block {block}, {self.discarded[block]} discarded, of history {self.seed}")

    def _note(self, sender: str, contract: str, verb: str, arguments: tuple[Any, ...]) -> None:
        if self.story is not None:
            shown = ", ".join(str(each) for each in arguments if isinstance(each, int))
            self.story.append(f"{NAMES.get(sender, sender)}: {contract}.{verb}({shown})")

    # What people know and have

    def is_held(self, node: int) -> bool:
        return self.protocol.registry.nodes[node].owner in self.held

    def nodes(self, role: Role) -> list[Node]:
        return [node for node in self.protocol.registry.nodes.values() if node.role == role]

    def seen(self, round: int, job: int, juror: int) -> Verdict:
        """What an honest juror finds that reads a job's bytes."""
        quality = self.works[round, job]
        if quality is Quality.AT_THE_BOUND:
            coin = keccak(text=f"{self.seed}, {round}, {job}, seen by {juror}")[0] & 1
            return Verdict.ACCEPTED if coin else Verdict.VOID
        return Verdict.ACCEPTED if quality is Quality.GOOD else Verdict.FRAUD

    def wealth(self, owner: str) -> int:
        """Tokens, credits, bonds and the escrow of runs; slashed bonds are the treasury's."""
        model = self.protocol
        bonds = sum(node.bond for node in model.registry.nodes.values() if node.owner == owner)
        runs = sum(run.escrow + run.reserved for run in model.market.runs.values() if run.requester == owner)
        pot = model.registry.pot if owner == TREASURY else 0
        return model.token.balances[owner] + model.credits.free[owner] + bonds + runs + pot

    def strikes(self, owners: Iterable[str]) -> int:
        """Strikes against the validators of these owners, in all runs."""
        those = set(owners)
        nodes = [node.number for node in self.nodes(Role.VALIDATOR) if node.owner in those]
        return sum(len(run.strikes.get(node, ())) for run in self.protocol.market.runs.values() for node in nodes)

    @property
    def flows(self) -> list[Flow]:
        credits = self.protocol.credits
        assert isinstance(credits, TracedCredits)
        return credits.flows

    # What parties do to be part of it

    def register(self, owner: str, role: Role, name: str, capacity: int) -> Refused | None:
        key = wallet(name)
        message = auth.node_binding(AT.chain_id, AT.registry, owner, key.address, int(role), capacity, LONG)
        signature = key.sign_typed(message)
        return self.attempt(owner, "registry", "register", role, key.address, capacity, LONG, signature)

    def contest(self, owner: str, name: str) -> int:
        """Registers a newcomer to the slot with the least bond; returns its node."""
        key = wallet(name)
        message = auth.node_binding(AT.chain_id, AT.registry, owner, key.address, int(Role.VALIDATOR), 1, LONG)
        self.do(owner, "registry", "contest", key.address, LONG, key.sign_typed(message))
        return len(self.protocol.registry.nodes)

    def open_run(self, terms: RunTerms, requester: str, escrow: int, served_by: Iterable[str]) -> int:
        """Returns the new run's number; validators of these owners serve it."""
        self.do(requester, "market", "open", terms, keccak(text="manifest 0"), "https://run.example")
        run, owners = len(self.protocol.market.runs), set(served_by)
        for node in self.nodes(Role.VALIDATOR):
            if node.owner in owners:
                self.do(node.owner, "market", "join", run, node.number, terms.rules_hash)
        self.do(requester, "market", "fund", run, escrow)
        return run

    def restore_bonds(self) -> None:
        """All of the cast come back to the bond that they began with."""
        registry = self.protocol.registry
        for node in registry.nodes.values():
            margin = MARGIN if node.role == Role.VALIDATOR else 0
            missing = registry.required_bond(node.role, node.capacity) + margin - node.bond
            if missing > 0 and node.owner in CAST and not node.retired_at:
                self.do(node.owner, "registry", "top_up", node.number, missing)


def wallet(name: str) -> Wallet:
    """The key of this name."""
    return _wallets(name)


@cache
def _wallets(name: str) -> Wallet:
    return Wallet(name, keccak(text=f"key of {name}"))


@cache
def key_of(address: str) -> Wallet:
    """The key at an address, among those of the cast."""
    names = [f"validator {i}" for i in range(VALIDATORS)] + [f"worker {i}" for i in range(WORKERS)]
    return next(found for name in names if (found := wallet(name)).address == address)


@cache
def _start() -> tuple[bytes, int, int]:
    """Nodes are active, and run 1 is open, funded and joined; the same before every history."""
    model = Protocol(AT, PROTOCOL, ADMIN, TREASURY)
    model.credits = model.registry.credits = model.market.credits = TracedCredits(model.credits, model.registry.roles)
    world = World(0, start=(model.saved(), 1_700_000_000, 1))
    for owner in [REQUESTER, COORDINATOR, TRAINER, WATCHER, *JURORS, *PROVIDERS]:
        world.do(owner, "token", "drip", owner, 3 * PURSE)
        world.do(owner, "credits", "buy", PURSE)
    for i, owner in enumerate(JURORS):
        assert world.register(owner, Role.VALIDATOR, f"validator {i}", 1) is None
    for i, owner in enumerate(PROVIDERS):
        assert world.register(owner, Role.WORKER, f"worker {i}", CAPACITY) is None
    world.restore_bonds()
    world.wait(world.now + PROTOCOL.registry.activation_delay)
    run = world.open_run(RUN, REQUESTER, PURSE // 2, JURORS)
    for node in world.nodes(Role.WORKER):
        world.do(node.owner, "market", "join", run, node.number, RUN.rules_hash)
    return world.protocol.saved(), world.now, world.block


NAMES = {
    REQUESTER: "requester",
    COORDINATOR: "coordinator",
    TRAINER: "trainer",
    WATCHER: "watcher",
    **{owner: f"owner of validator {i}" for i, owner in enumerate(JURORS)},
    **{owner: f"owner of worker {i}" for i, owner in enumerate(PROVIDERS)},
    **{wallet(f"validator {i}").address: f"validator {i}" for i in range(VALIDATORS)},
}
