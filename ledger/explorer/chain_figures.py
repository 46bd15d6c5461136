"""Figures of one node or owner as the contracts tell them now, for pages of a ledger that is not current."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from dataclasses import dataclass

from ledger.facts import Node
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.errors import AssizeError, Rejected

PATIENCE_SECONDS = 2.0
"""Longest time for which a page waits for these figures."""
READERS = 4
"""Pages that wait for them at once; others say that the chain did not answer in time."""


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """Figures at a block of the chain.

    Args:
        block: the chain's newest block; None if it did not answer in time.
        amounts: name and wei of each.
        counts: name and number of each.
    """

    block: int | None
    amounts: tuple[tuple[str, int], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


Figures = Callable[[Chain], ChainFigures]


class ChainFiguresReader:
    """Reads figures from one chain, a few at a time and each for a moment only."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="explorer-figures")

    def read(self, figures: Figures) -> ChainFigures:
        """Returns the figures, or none if the chain does not answer in time."""
        asked = self._pool.submit(figures, self._chain)
        try:
            return asked.result(PATIENCE_SECONDS)
        except (TooSlow, AssizeError):
            asked.cancel()
            return ChainFigures(None)


def of_node(number: int) -> Figures:
    """Returns how to ask for a node's bond, its jobs, and the credits and tokens of its owner."""

    def ask(chain: Chain) -> ChainFigures:
        reader, head = _newest(chain)
        node = reader.node(number)
        if not int(node.owner, 16):
            raise Rejected(f"there is no node {number}")
        required = reader.required_bond(node.role, node.capacity)
        amounts = (("Bond", node.bond), ("Required", required), ("Margin", node.bond - required))
        counts = (("Capacity", node.capacity), ("Jobs in flight", node.in_flight))
        return ChainFigures(head, amounts + _purse(reader, node.owner), counts)

    return ask


def of_owner(owner: str, nodes: tuple[Node, ...]) -> Figures:
    """Returns how to ask for an owner's credits and tokens, and the bonds of the nodes that the ledger knows."""

    def ask(chain: Chain) -> ChainFigures:
        reader, head = _newest(chain)
        held = reader.nodes([each.node for each in nodes])
        bonds = tuple((f"Bond of node {each.node}", now.bond) for each, now in zip(nodes, held, strict=True))
        return ChainFigures(head, _purse(reader, owner) + bonds)

    return ask


def _newest(chain: Chain) -> tuple[Reader, int]:
    head = chain.head()
    return chain.pinned(head), head.number


def _purse(reader: Reader, owner: str) -> tuple[tuple[str, int], ...]:
    return ("Owner's credits", reader.credits_of(owner)), ("Owner's tokens", reader.balance_of(owner))
