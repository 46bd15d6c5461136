"""The chain's events from the deployment to one block, straight from the RPC."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import BlockEvents, Rollback, Tail
from protocol.errors import Unavailable


def history(chain: Chain, block_number: int, block_hash: bytes) -> Iterator[BlockEvents]:
    """Yields every block with events up to the block given, and that block itself.

    Raises:
        Unavailable: the RPC does not answer, or the chain was reorganised meanwhile: start again.
    """
    tail = Tail(chain)
    while tail.cursor.number < block_number:
        news = tail.poll(block_number - tail.cursor.number)
        if isinstance(news, Rollback):
            raise Unavailable("the chain was reorganised while its events were read; try again")
        yield from news
    if tail.cursor.hash != block_hash:
        raise Unavailable(
            f"block {block_number} is no longer 0x{block_hash.hex()}: the chain was reorganised; try again"
        )
