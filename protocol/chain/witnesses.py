"""A second opinion on logs: what other endpoints tell of the same blocks.

An endpoint that is out of reach, or does not know the block (yet), has no opinion. One that tells other logs of the
very same block lies, or the first does: nothing can say which, so nothing is taken until they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.chain.block import Block
from protocol.chain.client import Chain
from protocol.chain.rpc import Request, Rpc
from protocol.errors import Unavailable

RawLogs = Sequence[dict[str, Any]]


def confirm_blocks(
    chain: Chain, blocks: Sequence[Block], requests: Sequence[Request], answers: Sequence[RawLogs]
) -> None:
    """Compares the logs of each block, asked for by its hash.

    Raises:
        Unavailable: an endpoint tells others.
    """
    for witness in chain.witnesses:
        for block, mine, theirs in zip(blocks, answers, _opinion(witness, requests), strict=True):
            if isinstance(theirs, list) and _named(theirs) != _named(mine):
                raise _disagreement(chain, witness, f"block {block.number} (0x{block.hash.hex()})", mine, theirs)


def confirm_range(chain: Chain, requests: Sequence[Request], raws: RawLogs, end: dict[str, Any]) -> None:
    """Compares the logs of a range, where the other endpoint has the same block at its end.

    ``requests`` are for the header of the first block, the logs, and the header of the last block.

    Raises:
        Unavailable: an endpoint tells others.
    """
    for witness in chain.witnesses:
        _, theirs, their_end = _opinion(witness, requests)
        same_end = isinstance(their_end, dict) and their_end.get("hash") == end["hash"]
        if same_end and isinstance(theirs, list) and _named(theirs) != _named(raws):
            where = f"blocks {int(requests[0].params[0], 16)} to {int(requests[2].params[0], 16)}"
            raise _disagreement(chain, witness, where, raws, theirs)


def _opinion(witness: Rpc, requests: Sequence[Request]) -> list[Any]:
    """What another endpoint answers; nothing at all where it is out of reach."""
    try:
        return witness.batch(requests)
    except Unavailable:
        return [None] * len(requests)


def _named(raws: RawLogs) -> list[tuple[str, str, tuple[str, ...], str]]:
    """What two endpoints must agree on."""
    return [(raw["blockHash"], raw["logIndex"], tuple(raw["topics"]), raw["data"]) for raw in raws]


def _disagreement(chain: Chain, witness: Rpc, where: str, mine: RawLogs, theirs: RawLogs) -> Unavailable:
    return Unavailable(
        f"RPC endpoints disagree: of {where}, {chain.rpc.url} tells {len(mine)} events, {witness.url} tells "
        f"{len(theirs)}, or others; nothing is read until they agree: leave out the one that is wrong"
    )
