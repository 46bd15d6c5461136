"""A chain with forks: what was mined where, what waits to be, and what every transaction did. Seeded; no I/O.

What the contracts did is played from a ``Tape``. Blocks take its steps in order, as many as chance has it; after a
reorganisation the same steps come in other blocks, or the tape goes on along another branch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

GWEI = 10**9
SECONDS_PER_BLOCK = 2
STEPS_PER_BLOCK = (0, 0, 0, 1, 1, 2)
"""As likely each. The tape must last: a chain on which nothing happens any more proves nothing."""


@dataclass(frozen=True, slots=True)
class RawLog:
    """A log as contracts emit it: address and topics in 0x-hex, data likewise."""

    address: str
    topics: tuple[str, ...]
    data: str


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of the tape, and when it was made (unix seconds)."""

    timestamp: int
    logs: tuple[RawLog, ...]


@dataclass(frozen=True, slots=True)
class Tape:
    """What happened on real contracts: a trunk, and from some of its places another way it could have gone."""

    trunk: tuple[Step, ...]
    branches: dict[int, tuple[Step, ...]]

    def step_at(self, place: Place) -> Step | None:
        """The step that follows a place; None at the end."""
        steps = self.trunk if place.fork is None else self.branches[place.fork]
        at = place.index if place.fork is None else place.index - place.fork
        return steps[at] if at < len(steps) else None


@dataclass(frozen=True, slots=True)
class Place:
    """How much of the tape has been played: ``index`` steps, those from ``fork`` on along that branch."""

    index: int = 0
    fork: int | None = None


@dataclass(frozen=True, slots=True)
class Payment:
    """A transaction somebody sent: so much of the chain's own coin. ``reverts``: it will fail once mined."""

    hash: bytes
    sender: str
    nonce: int
    value: int
    max_fee: int
    priority_fee: int
    reverts: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """``line`` holds the hashes of all blocks from the first to this one; ``nonces`` what each sender has used."""

    number: int
    hash: bytes
    parent: bytes
    timestamp: int
    base_fee: int
    steps: tuple[Step, ...]
    payments: tuple[Payment, ...]
    place: Place
    nonces: dict[str, int]
    line: tuple[bytes, ...]

    def transactions(self) -> Iterable[tuple[bytes, tuple[RawLog, ...], Payment | None]]:
        """Hash, logs and, where it is one, the payment, of each transaction in order."""
        for index, step in enumerate(self.steps):
            yield hashlib.sha256(b"step" + self.hash + bytes([index])).digest(), step.logs, None
        for payment in self.payments:
            yield payment.hash, (), payment


@dataclass(slots=True)
class World:
    """The chain and its mempool. ``head`` is the canonical one."""

    tape: Tape
    chance: Random
    base_fee: int = GWEI
    blocks: dict[bytes, Block] = field(default_factory=dict)
    pool: dict[tuple[str, int], Payment] = field(default_factory=dict)
    mined_in: dict[bytes, list[bytes]] = field(default_factory=dict)
    head: Block = field(init=False)

    def __post_init__(self) -> None:
        genesis = hashlib.sha256(b"genesis").digest()
        start = self.tape.trunk[0].timestamp - SECONDS_PER_BLOCK
        self.head = Block(0, genesis, bytes(32), start, GWEI, (), (), Place(), {}, (genesis,))
        self.blocks[genesis] = self.head

    @property
    def genesis(self) -> bytes:
        """Hash of the first block."""
        return self.head.line[0]

    def canonical(self) -> list[Block]:
        """All blocks of the canonical chain."""
        return [self.blocks[each] for each in self.head.line]

    def mine(self, takes_payments: bool = True) -> None:
        """Adds a block to the head."""
        steps, place = [], self.head.place
        for _ in range(self.chance.choice(STEPS_PER_BLOCK)):
            step = self.tape.step_at(place)
            if step is None:
                break
            steps.append(step)
            place = Place(place.index + 1, place.fork)
        nonces = dict(self.head.nonces)
        payments = self._payable(nonces) if takes_payments else []
        self._append(tuple(steps), tuple(payments), place, nonces)

    def reorganise(self, depth: int, dropped: float) -> None:
        """Undoes ``depth`` blocks. What was paid in them goes back to the mempool, but for a share that is lost."""
        depth = min(depth, self.head.number)
        for _ in range(depth):
            for payment in self.head.payments:
                if self.chance.random() >= dropped:
                    self.pool.setdefault((payment.sender, payment.nonce), payment)
            self.head = self.blocks[self.head.parent]
        forks = [fork for fork in self.tape.branches if fork == self.head.place.index]
        if self.head.place.fork is None and forks and self.chance.random() < 0.5:
            self._turn(forks[0])

    def accept(self, payment: Payment) -> str | None:
        """Takes a transaction into the mempool; returns why not, in a node's words."""
        if payment.nonce < self.head.nonces.get(payment.sender, 0):
            return "nonce too low"
        held = self.pool.get((payment.sender, payment.nonce))
        if held is not None and held.hash == payment.hash:
            return "already known"
        if held is not None and payment.max_fee < held.max_fee * 110 // 100:
            return "replacement transaction underpriced"
        self.pool[payment.sender, payment.nonce] = payment
        return None

    def is_canonical(self, block: Block, head: Block) -> bool:
        """Whether ``block`` is on the chain that ends in ``head``."""
        return block.number <= head.number and head.line[block.number] == block.hash

    def _turn(self, fork: int) -> None:
        """An empty block from which the tape goes on along a branch."""
        self._append((), (), Place(self.head.place.index, fork), dict(self.head.nonces))

    def _payable(self, nonces: dict[str, int]) -> list[Payment]:
        taken = []
        for (sender, nonce), payment in sorted(self.pool.items()):
            if nonce < nonces.get(sender, 0):
                del self.pool[sender, nonce]
            elif nonce == nonces.get(sender, 0) and payment.max_fee >= self.base_fee and self.chance.random() < 0.8:
                nonces[sender] = nonce + 1
                taken.append(self.pool.pop((sender, nonce)))
        return taken

    def _append(
        self, steps: tuple[Step, ...], payments: tuple[Payment, ...], place: Place, nonces: dict[str, int]
    ) -> None:
        parent = self.head
        late = max([parent.timestamp + SECONDS_PER_BLOCK, *(step.timestamp for step in steps)])
        salt = self.chance.getrandbits(64).to_bytes(8, "big")
        digest = hashlib.sha256(b"block" + parent.hash + salt).digest()
        made = Block(
            number=parent.number + 1,
            hash=digest,
            parent=parent.hash,
            timestamp=late,
            base_fee=self.base_fee,
            steps=steps,
            payments=payments,
            place=place,
            nonces=nonces,
            line=(*parent.line, digest),
        )
        self.head = self.blocks[digest] = made
        for payment in payments:
            self.mined_in.setdefault(payment.hash, []).append(digest)
