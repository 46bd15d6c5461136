"""The ledger as of a block by its hash: what came after it is undone in a transaction that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from ledger.store.database import Database, move, read_position
from ledger.store.index import roll_back
from ledger.store.stored_book import nothing_held
from protocol.chain.block import block_of
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.errors import AssizeError, Rejected, Unavailable


class NotKnown(Rejected):
    """The block is unknown to this ledger."""


class NotCanonical(Rejected):
    """Another block stands in its place."""


class TooOld(Rejected):
    """The ledger cannot go back to the block any more."""


@contextmanager
def as_of(chain: Chain, database: Database, block_hash: bytes) -> Iterator[Connection]:
    """Everything read is as of block ``block_hash``, back to the newest that is final.

    Raises:
        NotKnown: the RPC does not know the block.
        NotCanonical: it is not on the chain.
        TooOld: it is, but the ledger cannot go back to it.
        Unavailable: the ledger has not read so far yet, or not followed a reorganisation; or the database, or the RPC,
            does not answer.
    """
    with database.reading() as connection:
        if read_position(connection).block_hash == block_hash:
            yield connection
            return
    with database.trying() as connection:
        here = read_position(connection).cursor
        if block_hash in here:
            there = here.back_to(block_hash)
            roll_back(connection, there.number, nothing_held())
            move(connection, here, there)
            yield connection
            return
    raise _why_not(chain, here, block_hash)


def _why_not(chain: Chain, here: Cursor, block_hash: bytes) -> AssizeError:
    name = "0x" + block_hash.hex()
    header = chain.rpc.call("eth_getBlockByHash", name, False)
    if not header:
        return NotKnown(f"the RPC knows no block {name}: a reorganisation may have undone it; begin again")
    number, newest = block_of(header).number, chain.head().number
    if number > newest or chain.block(number).hash != block_hash:
        return NotCanonical(f"block {name} is not on the chain: another stands at height {number}; begin again")
    if number > here.number:
        return Unavailable(f"the ledger stands at block {here.number}, and has not taken in block {number} yet")
    if here.number > newest or chain.block(here.number).hash != here.hash:
        return Unavailable(
            f"the ledger stands at block 0x{here.hash.hex()}, which is not on the chain: "
            "it has not followed the reorganisation yet"
        )
    return TooOld(
        f"block {number} is older than those that answers can be as of; "
        f"'assize ledger replay --block {number}' makes the books of it"
    )
