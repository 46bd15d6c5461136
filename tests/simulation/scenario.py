"""One seed: the services live through a chain's worst days, then everything heals, and nothing may be amiss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from protocol.chain.deployment import FINALITY_DEPTH, Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import FinalityMoved
from protocol.chain.rpc import Rpc
from tests.simulation import truth
from tests.simulation.actors import INTENTS, Actor, Coordinator, Ledger, Payer
from tests.simulation.faults import Faults
from tests.simulation.node import REFUSED, REVERTING, Endpoint
from tests.simulation.stores import failing_databases
from tests.simulation.world import GWEI, Payment, Tape, World

FIRST_BLOCKS = 180
"""Mined before anybody looks: most of them are final, and read by range."""
DAYS = 100
"""Moments that the services live through while everything fails."""
READS, PAYS = 0.6, 0.15
"""How often each reader, and the payer, gets to do something in such a moment."""
DEEP = (8, 30, 60)
HEALING_BLOCKS = FINALITY_DEPTH + 6
MOST_HEALING_STEPS = 60
GENEROUS = 500 * GWEI


@dataclass(slots=True)
class Outcome:
    """What came of a seed. ``differences`` are sentences; empty where all is as it should be."""

    seed: int
    struck: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    intents: int = 0
    effects: int = 0
    failed: int = 0
    duplicated: int = 0
    lost: int = 0
    events: int = 0
    blocks: int = 0


class Clock:
    """The simulation's time: to wait is to let the world go on."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.now

    def sleep(self, _: float, /) -> None:
        """Lets some pass."""
        self._go_on()


class Scenario:
    """The world of one seed and everybody in it."""

    def __init__(self, seed: int, tape: Tape, deployment: Deployment, folder: Path) -> None:
        self.outcome = Outcome(seed)
        self.chance = Random(f"assize {seed}")
        self.world = World(tape, Random(f"world {seed}"))
        self.faults = Faults(Random(f"faults {seed}"), struck=self.outcome.struck)
        self.deployment = replace(deployment, start_block=0, start_hash=self.world.genesis)
        self.endpoints: list[Endpoint] = []
        self.others: set[str] = set()
        """Hashes of what other programs sent with the payer's key."""
        self.final = 0
        """What one reorganisation after another must not undo: the highest block that was ever final."""
        clock = Clock(self.pass_time)
        connect = self.connection(1 + seed % 2)
        self.ledger = Ledger(connect, folder / "ledger.db")
        self.coordinator = Coordinator(connect, folder / "coordinator.db")
        self.payer = Payer(self.connection(1), folder / "sender.db", clock, Random(f"payer {seed}"))
        self.clock = clock

    @property
    def actors(self) -> tuple[Actor[object], ...]:
        """All processes."""
        return self.ledger, self.coordinator, self.payer  # type: ignore[return-value]

    def connection(self, endpoints: int) -> Callable[[], Chain]:
        """How a process reaches the chain: through one endpoint that lies never, or two, of which one may."""
        made = [
            Endpoint(self.world, self.deployment, self.faults, lies=endpoints > 1 and not number)
            for number in range(endpoints)
        ]
        self.endpoints += made
        return lambda: Chain(
            [Rpc(f"http://rpc-{n}.test", transport=each) for n, each in enumerate(made)], self.deployment
        )

    def live(self) -> Outcome:
        """Everything, from the first block to the last comparison."""
        for _ in range(FIRST_BLOCKS):
            self.world.mine()
        with failing_databases(self.faults):
            for _ in range(DAYS):
                self.pass_time()
                for reader in (self.ledger, self.coordinator):
                    if self.chance.random() < READS:
                        reader.step()
                if self.chance.random() < PAYS:
                    self.payer.step()
            self.heal()
            self.compare()
            if self.outcome.seed % 10 == 0:
                self.break_finality()
        for actor in self.actors:
            actor.die()
        return self.outcome

    def pass_time(self) -> None:
        """The world goes on: blocks, forks, dear gas, somebody else's transactions."""
        world, faults = self.world, self.faults
        self.clock.now += 1.0
        if faults.strikes("asleep for an hour"):
            self.clock.now += 3600
        world.base_fee = 300 * GWEI if faults.strikes("fees too low") else self.chance.choice((GWEI, 3 * GWEI))
        if faults.strikes("transactions dropped"):
            world.pool.clear()
        if faults.strikes("nonce taken"):
            self.take_nonce()
        deep, shallow = faults.strikes("deep reorganisation"), faults.strikes("reorganisation")
        if deep or shallow:
            self.reorganise(self.chance.choice(DEEP) if deep else self.chance.randint(1, 4))
        elif not self.chance.randrange(2):
            world.mine()
        for endpoint in self.endpoints:
            endpoint.look()

    def reorganise(self, depth: int) -> None:
        """Another chain takes the place of ours: as a rule a longer one, sometimes one that is shorter for a while."""
        height = self.world.head.number
        self.final = max(self.final, height - FINALITY_DEPTH)
        self.world.reorganise(min(depth, height - self.final), dropped=0.3)
        while self.world.head.number < height + self.chance.randint(-2, 2):
            self.world.mine(takes_payments=self.chance.random() < 0.5)

    def take_nonce(self) -> None:
        """Another program with the payer's key sends a transaction of its own."""
        sender = self.payer.wallet.address.lower()
        nonce = self.world.head.nonces.get(sender, 0)
        digest = self.chance.randbytes(32)
        self.world.pool[sender, nonce] = Payment(digest, sender, nonce, 10**9, GENEROUS, GWEI)
        self.others.add("0x" + digest.hex())

    def heal(self) -> None:
        """No more faults; blocks until all is final; everybody gets through."""
        self.faults.healed = True
        for _ in range(HEALING_BLOCKS):
            self.pass_time()
            self.world.mine()
        for actor in self.actors:
            actor.problems.clear()
            for _ in range(MOST_HEALING_STEPS):
                if actor.step() and self.at_rest(actor):
                    break
                self.pass_time()
            else:
                name, why = type(actor).__name__.lower(), "; ".join(actor.problems[-2:])
                self.outcome.differences.append(f"the {name} is not through after everything healed: {why}")
        if self.payer.held is not None:
            self.payer.ask_again()
        for reader in (self.ledger, self.coordinator) * 2:
            reader.step()

    def at_rest(self, actor: Actor[object]) -> bool:
        """Whether it has nothing left to do."""
        if actor is not self.payer:
            return True
        sender = self.payer.held
        return sender is not None and not sender.unfinished() and len(self.payer.reported) == INTENTS

    def compare(self) -> None:
        """The services' books against what happened."""
        outcome, world = self.outcome, self.world
        logs = truth.logs(world, self.deployment)
        outcome.events, outcome.blocks = len(logs), world.head.number
        outcome.differences += truth.ledger_differences(self.ledger.path, self.deployment, world, logs)
        clean = self.connection(1)
        outcome.differences += truth.mirror_differences(self.coordinator.path, clean, world)
        self.count_intents()

    def count_intents(self) -> None:
        """Each intent is mined once, or reported failed."""
        outcome, effects = self.outcome, Counter(truth.effects(self.world, self.payer.wallet.address))
        outcome.intents = INTENTS
        for value in range(1, INTENTS + 1):
            reported = self.payer.reported.get(value, "not reported at all")
            outcome.effects += effects[value]
            outcome.failed += value in self.payer.reported and reported is not None
            if effects[value] > 1:
                outcome.duplicated += 1
            if effects[value] == 0 and (reported is None or value not in self.payer.reported):
                outcome.lost += 1
            doomed = value % 17 in (REFUSED, REVERTING)
            if doomed and effects[value]:
                outcome.differences.append(f"payment {value} took effect, which could not")
            if not doomed and reported is not None and reported.split()[-1] not in self.others:
                outcome.differences.append(f"payment {value} is said to have failed without a cause: {reported}")

    def break_finality(self) -> None:
        """The chain goes back on what was final: readers halt, and keep what they had."""
        self.outcome.struck["finality moved"] += 1
        before = truth.stored_events(self.ledger.path)
        self.world.reorganise(HEALING_BLOCKS + 4, dropped=0.0)
        for _ in range(HEALING_BLOCKS + 8):
            self.world.mine()
        for reader in (self.ledger, self.coordinator):
            try:
                reader.step()
            except FinalityMoved:
                continue
            self.outcome.differences.append(f"the {type(reader).__name__.lower()} went on although finality had moved")
        if truth.stored_events(self.ledger.path) != before:
            self.outcome.differences.append("the ledger changed its books although finality had moved")
