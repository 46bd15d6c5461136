"""A second opinion on logs: what other endpoints tell of the same blocks.

Logs that an endpoint leaves out leave no trace in the others. So where there are several endpoints, events are taken
when a second one tells the same. One that is out of reach, or does not know the block (yet), has no opinion; one that
tells other logs of the very same block lies, or the first does: nothing can say which, so nothing is taken until they
agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.chain.block import Block
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc, RpcRequest
from protocol.errors import Unavailable

RawLogs = Sequence[dict[str, Any]]


def confirm_blocks(
    chain: Chain, blocks: Sequence[Block], requests: Sequence[RpcRequest], answers: Sequence[RawLogs]
) -> None:
    """Compares the logs of each block, asked for by its hash.

    Raises:
        Unavailable: another endpoint tells others, or there are others and none knows one of the blocks.
    """
    opinions = [(witness, _opinion(witness, requests)) for witness in chain.witnesses]
    for place, block in enumerate(blocks):
        where = f"block {block.number} (0x{block.hash.hex()})"
        told = [(witness, opinion[place]) for witness, opinion in opinions]
        _compare(chain, where, answers[place], told)


def confirm_range(chain: Chain, requests: Sequence[RpcRequest], raws: RawLogs, end: dict[str, Any]) -> None:
    """Compares the logs of a range with those of other endpoints that have the same block at its end.

    ``requests`` are for the headers of the first and the last block, and the logs.

    Raises:
        Unavailable: another endpoint tells others, or there are others and none has that block.
    """
    told = []
    for witness in chain.witnesses:
        _, their_end, theirs = _opinion(witness, requests)
        same_end = isinstance(their_end, dict) and their_end.get("hash") == end["hash"]
        told.append((witness, theirs if same_end else None))
    _compare(chain, f"blocks {int(requests[0].params[0], 16)} to {int(requests[1].params[0], 16)}", raws, told)


def _compare(chain: Chain, where: str, mine: RawLogs, told: Sequence[tuple[Rpc, Any]]) -> None:
    confirmed = not told
    for witness, theirs in told:
        if isinstance(theirs, list):
            confirmed = True
            if _named(theirs) != _named(mine):
                raise Unavailable(
                    f"RPC endpoints disagree: of {where}, {chain.rpc.url} tells {len(mine)} events, {witness.url} "
                    f"tells {len(theirs)}, or others; nothing is read until they agree: leave out the one that is wrong"
                )
    if not confirmed:
        raise Unavailable(f"no second RPC endpoint confirms what {chain.rpc.url} tells of {where}")


def _opinion(witness: Rpc, requests: Sequence[RpcRequest]) -> list[Any]:
    """What another endpoint answers; nothing at all where it is out of reach."""
    try:
        return witness.batch(requests)
    except Unavailable:
        return [None] * len(requests)


def _named(raws: RawLogs) -> list[tuple[str, str, tuple[str, ...], str]]:
    """What two endpoints must agree on."""
    return [(raw["blockHash"], raw["logIndex"], tuple(raw["topics"]), raw["data"]) for raw in raws]
