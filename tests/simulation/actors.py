"""The real services, small enough to be killed and started again: the ledger's index, the mirror, a sender."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from coordinator.mirror.mirror import Mirror
from coordinator.store import Store
from ledger.store.database import Database
from ledger.store.index import Index
from protocol.chain.reading.client import Chain
from protocol.chain.writing import calls
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.pending import Clock
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.node.wallet import Wallet
from tests.simulation.faults import Killed

NOBODY = "0x000000000000000000000000000000000000dEaD"
INTENTS = 24
MOST_AT_ONCE = 4
FEES = Fees(resend_seconds=2.0, replace_seconds=20.0)
Held = TypeVar("Held")


class Actor(Generic[Held]):
    """A process: started when it has something to do, gone when it is killed, and started again.

    What it found in its way is in ``problems``.
    """

    def __init__(self, connect: Callable[[], Chain]) -> None:
        self._connect = connect
        self._chain: Chain | None = None
        self.held: Held | None = None
        self.problems: list[str] = []

    def step(self) -> bool:
        """Lives for a moment; returns whether it got through."""
        try:
            self.work(self.held or self._start())
        except Killed:
            self.die()
        except Unavailable as error:
            self.problems.append(str(error))
        else:
            return True
        return False

    def _start(self) -> Held:
        try:
            self._chain = self._chain or self._connect()
            self.held = self.open(self._chain)
        except Misconfigured as error:  # it ends with a sentence; whoever watches over it starts it again
            raise Unavailable(str(error)) from error
        return self.held

    def die(self) -> None:
        """The end of the process: what it held is gone, what it wrote is not."""
        held, self.held = self.held, None
        chain, self._chain = self._chain, None
        if held is not None:
            self.drop(held)
        if chain is not None:
            chain.close()

    def open(self, chain: Chain) -> Held:
        """Starts."""
        raise NotImplementedError

    def work(self, held: Held) -> None:
        """One pass."""
        raise NotImplementedError

    def drop(self, held: Held) -> None:
        """What the system does for a process that died: closes its files."""
        raise NotImplementedError


class Ledger(Actor[tuple[Database, Index]]):
    """The auditor's index."""

    def __init__(self, connect: Callable[[], Chain], path: Path) -> None:
        super().__init__(connect)
        self.path = path

    def open(self, chain: Chain) -> tuple[Database, Index]:
        database = Database(str(self.path), chain.deployment)
        return database, Index(chain, database)

    def work(self, held: tuple[Database, Index]) -> None:
        while held[1].advance():
            pass

    def drop(self, held: tuple[Database, Index]) -> None:
        held[0].close()


class Coordinator(Actor[tuple[Store, Mirror]]):
    """The coordinator's mirror."""

    def __init__(self, connect: Callable[[], Chain], path: Path) -> None:
        super().__init__(connect)
        self.path = path

    def open(self, chain: Chain) -> tuple[Store, Mirror]:
        store = Store(f"sqlite:///{self.path}")
        return store, Mirror(chain, store)

    def work(self, held: tuple[Store, Mirror]) -> None:
        held[1].follow()

    def drop(self, held: tuple[Store, Mirror]) -> None:
        held[0].close()


class Payer(Actor[Sender]):
    """Somebody with payments to make: each a different number of wei, which names the intent.

    ``reported`` is what the sender said of each: None where it was mined, else why it failed.
    """

    def __init__(self, connect: Callable[[], Chain], path: Path, clock: Clock, chance: Random) -> None:
        super().__init__(connect)
        self._path, self._clock, self._chance = path, clock, chance
        self.wallet = Wallet("payer", chance.randbytes(32))
        self.intents = [(f"pay/{value}", calls.pay_native(NOBODY, value)) for value in range(1, INTENTS + 1)]
        self.reported: dict[int, str | None] = {}

    def open(self, chain: Chain) -> Sender:
        return Sender(chain, self.wallet, self._path, FEES, poll_seconds=0.5, wait_seconds=15, clock=self._clock)

    def work(self, held: Sender) -> None:
        held.tend()
        left = [place for place in range(INTENTS) if place + 1 not in self.reported]
        batch = left[: self._chance.randint(1, MOST_AT_ONCE)]
        for place in batch:
            self._pay(held, place)

    def ask_again(self) -> None:
        """What the sender says of each now that all is final: what it did may have been undone since."""
        assert self.held is not None
        for place in range(INTENTS):
            self._pay(self.held, place)

    def _pay(self, sender: Sender, place: int) -> None:
        try:
            sender.send_once(*self.intents[place])
            self.reported[place + 1] = None
        except Rejected as error:
            self.reported[place + 1] = str(error)

    def drop(self, held: Sender) -> None:
        held.close()
