"""Cross-checks logs between endpoints.

A log that an endpoint omits leaves no trace in its other logs. With several endpoints, events are therefore accepted
only if a second endpoint returns the same. An endpoint that is unavailable, or does not know the block (yet), is
ignored. If two endpoints return different logs of the same block, one of them is wrong, and reading stops until they
agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter

from protocol.chain.block import Block
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc, RpcRequest
from protocol.errors import Unavailable

RawLogs = Sequence[dict[str, Any]]

DISAGREEMENTS = Counter("assize_rpc_disagreements", "Blocks or ranges of which RPC endpoints returned unlike events")
UNCONFIRMED = Counter("assize_rpc_unconfirmed", "Blocks or ranges that no second RPC endpoint confirmed")


def confirm_blocks(
    chain: Chain, blocks: Sequence[Block], requests: Sequence[RpcRequest], answers: Sequence[RawLogs]
) -> None:
    """Compares the logs of each block, requested by block hash.

    Raises:
        Unavailable: another endpoint returns other logs, or no other endpoint knows one of the blocks.
    """
    opinions = [(witness, _opinion(witness, requests)) for witness in chain.witnesses]
    for place, block in enumerate(blocks):
        where = f"block {block.number} (0x{block.hash.hex()})"
        told = [(witness, opinion[place]) for witness, opinion in opinions]
        _compare(chain, where, answers[place], told)


def confirm_range(chain: Chain, requests: Sequence[RpcRequest], raws: RawLogs, end: dict[str, Any]) -> None:
    """Compares the logs of a range with those of endpoints that have the same last block.

    Args:
        chain: the endpoints.
        requests: for the headers of the first and the last block, and for the logs.
        raws: the logs to confirm.
        end: the header of the last block.

    Raises:
        Unavailable: another endpoint returns other logs, or no other endpoint has the last block.
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
                DISAGREEMENTS.inc()
                raise Unavailable(
                    f"RPC endpoints disagree about {where}: {chain.rpc.url} returns {len(mine)} events, {witness.url} "
                    f"returns {len(theirs)}, or different ones; reading waits until they agree: remove the wrong one"
                )
    if not confirmed:
        UNCONFIRMED.inc()
        raise Unavailable(f"no second RPC endpoint confirms the events that {chain.rpc.url} returns for {where}")


def _opinion(witness: Rpc, requests: Sequence[RpcRequest]) -> list[Any]:
    """Returns another endpoint's answers, all None if it is unavailable."""
    try:
        return witness.batch(requests)
    except Unavailable:
        return [None] * len(requests)


def _named(raws: RawLogs) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Returns the fields on which two endpoints must agree."""
    return [(raw["blockHash"], raw["logIndex"], tuple(raw["topics"]), raw["data"]) for raw in raws]
