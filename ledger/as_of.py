"""The ledger as of a block by its hash: what came after it is undone in a transaction that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, update

from ledger.database import Database, position_values, read_position
from ledger.index import POSITION, roll_back
from ledger.stored_book import nothing_held
from protocol.chain.block import block_of
from protocol.chain.client import Chain
from protocol.chain.cursor import Cursor
from protocol.errors import AssizeError, Rejected, Unavailable


class NotCanonical(Rejected):
    """The block is not, or no longer, on the chain."""


class TooOld(Rejected):
    """The block is one that the ledger cannot go back to any more."""


@contextmanager
def as_of(chain: Chain, database: Database, block_hash: bytes) -> Iterator[Connection]:
    """Everything read is as of block ``block_hash``, back to the newest that is final.

    Raises:
        NotCanonical: it is not on the chain.
        TooOld: it is, before the newest final one.
        Unavailable: the ledger has not read so far yet; or the database, or the RPC, does not answer.
    """
    with database.trying() as connection:
        here = read_position(connection).cursor
        there = here.back_to(block_hash)
        if there is not None:
            if there != here:
                roll_back(connection, there.number, nothing_held())
                connection.execute(update(POSITION).values(**position_values(there)))
            yield connection
            return
    raise _why_not(chain, here, block_hash)


def _why_not(chain: Chain, here: Cursor, block_hash: bytes) -> AssizeError:
    name = "0x" + block_hash.hex()
    header = chain.rpc.call("eth_getBlockByHash", name, False)
    number = block_of(header).number if header else None
    if number is None or chain.block(number).hash != block_hash:
        return NotCanonical(f"block {name} is not on the chain; begin again as of one that is")
    if number < here.oldest:
        return TooOld(
            f"block {number} is final, and older than those that answers can be as of (from {here.oldest} on); "
            f"'assize ledger replay --block {number}' makes the books of it"
        )
    return Unavailable(f"the ledger stands at block {here.number}, and has not taken in block {number} ({name}) yet")
