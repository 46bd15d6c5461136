"""The contracts' events in order, without gap or repeat, across reorganisations.

    cursor ──joint──> cursor+1 ... head - confirmations
      │                 │
      │                 └─ within ``finality_depth`` of the head: every header is fetched, each names the one before it
      │                    as its parent, and logs are asked for by block hash, so they cannot be of another fork
      │                    deeper: logs come by range, as wide as the endpoint allows; the joint and the end are checked
      └─ remembers the hashes of the blocks before it, back to finality: after a reorganisation the newest one that is
         still canonical is where the caller goes back to

A caller with a database stores the cursor in the same transaction as what the events did, and passes the stored one to
each ``poll``: if its transaction failed, it gets the same events again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from protocol.chain.block import Block, block_of
from protocol.chain.client import Chain
from protocol.chain.decoding import log_of
from protocol.chain.events import Log
from protocol.chain.rpc import Request, RpcFault
from protocol.errors import Misconfigured, Unavailable

FINALITY_DEPTH = 64
"""Blocks after which a block is taken not to be reorganised away: two epochs of the beacon chain."""

FIRST_RANGE = 1_000
WIDEST_RANGE = 20_000
"""Blocks asked for in one ``eth_getLogs`` during backfill: the first, and the most it grows to by doubling."""


class FinalityMoved(Misconfigured):
    """The chain dropped a block older than finality. Nothing read so far can be trusted: stop before paying anybody."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last block whose events were handed out, and the blocks known before it, oldest first."""

    number: int
    hash: bytes
    ancestors: tuple[tuple[int, bytes], ...] = ()

    def to_json(self) -> str:
        """One line of text for a database column; ``from_json`` reads it back."""
        return json.dumps([self.number, self.hash.hex(), [[number, known.hex()] for number, known in self.ancestors]])

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """The cursor that ``to_json`` wrote."""
        number, block_hash, ancestors = json.loads(text)
        known = tuple((height, bytes.fromhex(digest)) for height, digest in ancestors)
        return cls(number, bytes.fromhex(block_hash), known)

    def advanced(self, blocks: Iterable[Block], finality_depth: int) -> Cursor:
        """The cursor after these blocks (ascending), remembering as far back as finality, and one block beyond."""
        known = [*self.ancestors, (self.number, self.hash), *((block.number, block.hash) for block in blocks)]
        number, block_hash = known.pop()
        final = number - finality_depth
        beyond = [entry for entry in known if entry[0] <= final][-1:]
        return Cursor(number, block_hash, tuple(beyond + [entry for entry in known if entry[0] > final]))


@dataclass(frozen=True, slots=True)
class BlockEvents:
    """A block and our contracts' events in it, in log order."""

    block: Block
    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    """The chain was reorganised: undo all effects of blocks above ``to_block``, and store ``cursor``."""

    to_block: int
    cursor: Cursor


class _Moved(Exception):
    """What was just fetched is of different forks; the next poll sees clearly."""


class Tail:
    """Follows one deployment's events. Not safe to share between threads.

    Args:
        chain: the deployment.
        start: the stored cursor; None reads from the deployment's first block.
        confirmations: blocks a block must be behind the head before its events are handed out.
        finality_depth: blocks after which a reorganisation is a reason to halt.
    """

    def __init__(
        self,
        chain: Chain,
        start: Cursor | None = None,
        confirmations: int = 0,
        finality_depth: int = FINALITY_DEPTH,
    ) -> None:
        self._chain = chain
        self._confirmations = confirmations
        self._finality_depth = finality_depth
        self._range = FIRST_RANGE
        self.cursor = start or Cursor(chain.deployment.start_block, chain.deployment.start_hash)
        self._contract_of = chain.deployment.contract_names()

    def poll(self, max_blocks: int = WIDEST_RANGE, cursor: Cursor | None = None) -> list[BlockEvents] | Rollback:
        """The next blocks that have events, and always the last block looked at; or how far to go back.

        Idle, it costs one RPC request. Empty where there is nothing new.

        Args:
            max_blocks: most blocks to look at.
            cursor: where to go on from; None goes on after the last answer.

        Raises:
            Unavailable: the RPC does not answer; nothing was skipped.
            FinalityMoved: a block older than finality is gone.
        """
        if cursor is not None:
            self.cursor = cursor
        head = self._chain.head()
        if head.hash == self.cursor.hash:
            return []
        target = min(head.number - self._confirmations, self.cursor.number + max_blocks)
        try:
            if target <= self.cursor.number:
                return self._behind(head)
            return self._ahead(head, target)
        except _Moved:
            return []

    # Blocks after the cursor

    def _ahead(self, head: Block, target: int) -> list[BlockEvents] | Rollback:
        first_live = head.number - self._finality_depth
        if self.cursor.number + 1 < first_live:
            return self._backfill(min(target, first_live))
        headers = self._headers(head, target)
        if headers[0].parent != self.cursor.hash:
            return self._roll_back()
        if any(child.parent != parent.hash for parent, child in pairwise(headers)):
            raise _Moved
        logs = self._logs_by_hash(headers)
        found = [BlockEvents(block, block_logs) for block, block_logs in zip(headers, logs, strict=True)]
        self.cursor = self.cursor.advanced(headers, self._finality_depth)
        return [events for events in found if events.logs or events is found[-1]]

    def _headers(self, head: Block, target: int) -> list[Block]:
        wanted = range(self.cursor.number + 1, target + 1)
        if len(wanted) == 1 and target == head.number:
            return [head]
        headers = self._chain.blocks(wanted)
        if len(headers) != len(wanted):
            raise _Moved
        return headers

    def _logs_by_hash(self, headers: Sequence[Block]) -> list[tuple[Log, ...]]:
        addresses = list(self._chain.deployment.addresses)
        answers = self._chain.rpc.batch(
            [Request("eth_getLogs", ({"blockHash": "0x" + b.hash.hex(), "address": addresses},)) for b in headers]
        )
        for answer in answers:
            if isinstance(answer, RpcFault):
                raise answer
        return [
            tuple(log for log in (self._log(raw, block.timestamp) for raw in answer) if log)
            for block, answer in zip(headers, answers, strict=True)
        ]

    def _backfill(self, last: int) -> list[BlockEvents] | Rollback:
        first = self.cursor.number + 1
        last = min(last, first + self._range - 1)
        joint = self._chain.block(first)
        if joint.parent != self.cursor.hash:
            return self._roll_back()
        raw_logs = self._logs_by_range(first, last)
        if raw_logs is None:
            return []
        end = joint if last == first else self._chain.block(last)
        found = self._grouped(raw_logs, end)
        self._range = min(self._range * 2, WIDEST_RANGE)
        self.cursor = self.cursor.advanced([events.block for events in found], self._finality_depth)
        return found

    def _logs_by_range(self, first: int, last: int) -> list[dict[str, Any]] | None:
        """Raw logs of a range; None where it was too wide for the endpoint, and is narrower from now on."""
        wanted = {"fromBlock": hex(first), "toBlock": hex(last), "address": list(self._chain.deployment.addresses)}
        try:
            return list(self._chain.rpc.call("eth_getLogs", wanted))
        except RpcFault:
            if self._range == 1:
                raise
            self._range = max(1, (last - first + 1) // 2)
            return None

    def _grouped(self, raw_logs: list[dict[str, Any]], end: Block) -> list[BlockEvents]:
        by_block: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for raw in raw_logs:
            by_block[int(raw["blockNumber"], 16)].append(raw)
        by_block.setdefault(end.number, [])
        times = self._timestamps(by_block, end)
        return [self._sparse_block(number, by_block[number], times[number], end) for number in sorted(by_block)]

    def _sparse_block(self, number: int, raws: list[dict[str, Any]], timestamp: int, end: Block) -> BlockEvents:
        logs = tuple(log for log in (self._log(raw, timestamp) for raw in raws) if log)
        if number == end.number:
            if any(log.block_hash != end.hash for log in logs):
                raise _Moved
            return BlockEvents(end, logs)
        return BlockEvents(Block(number, bytes.fromhex(raws[0]["blockHash"][2:]), None, timestamp), logs)

    def _timestamps(self, by_block: dict[int, list[dict[str, Any]]], end: Block) -> dict[int, int]:
        """Block times, from the logs where the endpoint puts them there, else from headers in one round trip."""
        times = {end.number: end.timestamp}
        missing = []
        for number, raws in by_block.items():
            if number != end.number and raws[0].get("blockTimestamp"):
                times[number] = int(raws[0]["blockTimestamp"], 16)
            elif number != end.number:
                missing.append(number)
        times |= {block.number: block.timestamp for block in self._chain.blocks(missing)}
        return times

    def _log(self, raw: dict[str, Any], timestamp: int) -> Log | None:
        return log_of(raw, self._contract_of[raw["address"].lower()], timestamp)

    # Blocks before it

    def _behind(self, head: Block) -> list[BlockEvents] | Rollback:
        """The head is not above the cursor: an endpoint that lags, or a shorter chain that replaced ours."""
        known = dict(self.cursor.ancestors) | {self.cursor.number: self.cursor.hash}
        if known.get(head.number, head.hash) == head.hash:
            return []
        return self._roll_back()

    def _roll_back(self) -> Rollback:
        """Goes back to the newest block we know that is still canonical."""
        ancestors = self.cursor.ancestors
        answers = self._chain.rpc.batch([Request("eth_getBlockByNumber", (hex(n), False)) for n, _ in ancestors])
        for index in reversed(range(len(ancestors))):
            answer = answers[index]
            if isinstance(answer, RpcFault):
                raise answer
            if answer and block_of(answer).hash == ancestors[index][1]:
                number, block_hash = ancestors[index]
                self.cursor = Cursor(number, block_hash, ancestors[:index])
                return Rollback(number, self.cursor)
        return self._halt()

    def _halt(self) -> Rollback:
        oldest = self.cursor.ancestors[0][0] if self.cursor.ancestors else self.cursor.number
        if self._chain.head().number < oldest:
            raise Unavailable(f"the RPC at {self._chain.rpc.url} is behind block {oldest}, which it had shown before")
        raise FinalityMoved(
            f"the chain at {self._chain.rpc.url} no longer holds block {oldest}, which was final: "
            "stop, compare with another RPC, and rebuild from the start block once the chain is settled"
        )
