"""Signed answers of one store, side by side: a receipt, and a refusal that may contradict it.

Anyone can check them by the store's address, which the run's rules name; nothing else is needed. JSON:

    {"chain_id":…,"rounds":"0x…","run":…,"store":"0x…",
     "receipt":{"round":…,"node":…,"leaves":"0x…","time":…,"signature":"0x…"},
     "refusal":{"root":"0x…","time":…,"signature":"0x…"} or null}

PURE.
"""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.api import Address, Body, Id, NodeId, Seconds, StoreRefusal
from protocol.wire.assignments import unpack_leaves
from protocol.wire.canonical import HexBytes, Signature, validating
from protocol.wire.receipts import HELD_SECONDS

MAX_BYTES = 64 << 10


class PartReceipt(Body):
    """A store's receipt for a node's packed leaves of a round."""

    round: Id
    node: NodeId
    leaves: HexBytes
    time: Seconds
    signature: Signature


class StoreAnswers(Body):
    """Answers of the store with the key ``store``."""

    chain_id: Annotated[int, Field(ge=0, lt=1 << 256)]
    rounds: Address
    run: Id
    store: Address
    receipt: PartReceipt
    refusal: StoreRefusal | None = None

    def proof(self) -> str:
        """Returns a sentence on what the answers prove.

        Raises:
            Rejected: one is not signed by the store, or the refusal does not contradict the receipt.
        """
        where, given = (self.chain_id, self.rounds, self.run), self.receipt
        promise = auth.receipt(*where, given.round, given.node, given.leaves, given.time)
        auth.check(promise, given.signature, self.store, "the receipt", "the store's key")
        roots, until = [leaf.root for leaf in unpack_leaves(given.leaves)], given.time + HELD_SECONDS
        held = (
            f"store {self.store} held the {len(roots)} artifacts of node {given.node} in round {given.round} at "
            f"{_utc(given.time)} and promised to serve them until {_utc(until)}"
        )
        if self.refusal is None:
            return held
        said = self.refusal
        auth.check(
            auth.refusal(*where, said.root, said.time), said.signature, self.store, "the refusal", "the store's key"
        )
        if said.root not in roots:
            raise Rejected(f"no contradiction: the receipt is not for the refused artifact 0x{said.root.hex()}")
        # In the same second the refusal may have come first, before the upload.
        if not given.time < said.time <= until:
            raise Rejected(f"no contradiction: the refusal is of {_utc(said.time)}, outside the time of the receipt")
        return f"contradiction: {held}, but refused 0x{said.root.hex()} at {_utc(said.time)}"


def parse_answers(data: bytes) -> StoreAnswers:
    """Reads answers; raises ``Rejected`` for any other bytes."""
    if len(data) > MAX_BYTES:
        raise Rejected(f"invalid answers of {len(data)} bytes: expected at most {MAX_BYTES}")
    with validating("invalid answers of a store"):
        return StoreAnswers.model_validate_json(data)


def _utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
