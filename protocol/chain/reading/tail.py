"""Follows the contracts' events in order, without gap or repeat, across reorganisations.

    cursor ──joint──> cursor+1 ... head - confirmations
      │                 │
      │                 └─ not final: fetches every header, checks that each names its predecessor as parent, and
      │                    requests logs by block hash, so that they cannot belong to another fork
      │                    final: requests logs by range, as wide as the endpoint allows, in one round trip with the
      │                    headers of both ends: the endpoint has the last block, and the range follows the cursor
      └─ remembers the hashes of the blocks before it, back to finality: after a reorganisation the caller goes back to
         the newest of them that is still canonical

With several endpoints, events are accepted once a second endpoint returns the same; a contradiction stops reading until
they agree. A missing block is never taken for a reorganised one: the tail halts only if another block has replaced a
final one.

A caller with a database stores the cursor in the same transaction as the effects of the events, and passes the stored
cursor to each ``poll``: after a failed transaction it gets the same events again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from eth_abi.exceptions import DecodingError

from protocol.chain.block import Block, block_of
from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.chain.reading.decoding import log_of
from protocol.chain.reading.witnesses import confirm_blocks, confirm_range
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.errors import Misconfigured, Unavailable

FIRST_RANGE = 100
WIDEST_RANGE = 20_000
"""Blocks per ``eth_getLogs`` during backfill: at first, and at most after doubling."""

TRIED_AFTER = 100
"""Ranges after which one wider than a refused one is tried again: most endpoints have a limit, some a bad moment."""

UNCLEAR_POLLS = 20
"""Consecutive polls that may find blocks missing or on different forks while an endpoint catches up."""

FITTING_LOGS = 10_000
"""Most logs that one answer should hold; the range is narrowed to fit."""


class FinalityMoved(Misconfigured):
    """The chain replaced a final block: stop, since nothing read so far can be trusted."""


@dataclass(frozen=True, slots=True)
class BlockEvents:
    """A block and our contracts' events in it, in log order."""

    block: Block
    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    """A reorganisation: undo all effects of blocks above ``to_block``, and store ``cursor``."""

    to_block: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A requested range of blocks: headers of the first and the last, then logs."""

    first: int
    last: int
    requests: tuple[RpcRequest, ...]
    answers: Future[list[Any]]


class _Moved(Exception):
    """The answers belong to different forks; the next poll tries again."""


class Tail:
    """Follows one deployment's events. Not safe to share between threads.

    Args:
        chain: the deployment, which defines finality.
        start: the stored cursor; None reads from the deployment's first block.
        confirmations: depth below the head at which a block's events are returned.
        ahead: fetches the next range during backfill while the caller works on this one; not used with several
            endpoints, since each range must be confirmed.
    """

    def __init__(
        self, chain: Chain, start: Cursor | None = None, confirmations: int = 0, ahead: Executor | None = None
    ) -> None:
        self._chain = chain
        self._confirmations = confirmations
        self._range, self._widest, self._granted = FIRST_RANGE, WIDEST_RANGE, 0
        self._ahead = None if chain.witnesses else ahead
        self._fetched: _Fetched | None = None
        self.cursor = start or Cursor(chain.deployment.start_block, chain.deployment.start_hash)
        self.head_number = self.cursor.number
        """Height of the chain at the last ``poll``."""
        self.final_number = 0
        """Height of its newest final block then."""
        self._contract_of = chain.deployment.contract_names()
        self._unclear = 0

    @property
    def at_head(self) -> bool:
        """True if the last ``poll`` read all that was to be read when it asked for the head."""
        return self.cursor.number >= self.head_number - self._confirmations

    def follow(self, restart: Callable[[], Tail]) -> Iterator[Log]:
        """Yields every new event up to the head; after a reorganisation from a tail begun anew by ``restart``.

        Raises:
            Unavailable, FinalityMoved: as ``poll``.
        """
        tail = self
        while blocks := tail.poll():
            if isinstance(blocks, Rollback):
                tail = restart()
                continue
            yield from (log for block in blocks for log in block.logs)

    def poll(self, max_blocks: int = WIDEST_RANGE, cursor: Cursor | None = None) -> list[BlockEvents] | Rollback:
        """Returns the next blocks with events, plus the last block read, or a rollback.

        Returns an empty list, at the cost of one RPC request, if nothing is new.

        Args:
            max_blocks: most blocks to read.
            cursor: the place to continue from; None continues after the last answer.

        Raises:
            Unavailable: the RPC does not answer or keeps missing blocks, or endpoints contradict each other; no block
                was skipped.
            FinalityMoved: the chain replaced a final block.
        """
        if cursor is not None:
            self.cursor = cursor
        try:
            found = self._poll(max_blocks)
        except _Moved:
            return self._unclear_again()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, DecodingError) as error:
            raise Unavailable(f"invalid answer from the RPC at {self._chain.rpc.url}: {error!r}") from error
        self._unclear = 0
        return found

    def _unclear_again(self) -> list[BlockEvents]:
        """Returns no blocks at first; raises ``Unavailable`` if polls keep failing."""
        self._unclear += 1
        if self._unclear < UNCLEAR_POLLS:
            return []
        raise Unavailable(
            f"the RPC at {self._chain.rpc.url} has block {self.head_number} but not all blocks between it and block "
            f"{self.cursor.number}; let it catch up, or use another endpoint"
        )

    def _poll(self, max_blocks: int) -> list[BlockEvents] | Rollback:
        head, final = self._chain.head_and_final()
        self.head_number, self.final_number = head.number, final
        if head.hash == self.cursor.hash:
            return []
        target = min(head.number - self._confirmations, self.cursor.number + max_blocks)
        if target <= self.cursor.number:
            return self._behind(head)
        if self.cursor.number + 1 < final:
            return self._backfill(min(target, final), final)
        return self._live(head, target, final)

    # Blocks after the cursor

    def _live(self, head: Block, target: int, final: int) -> list[BlockEvents] | Rollback:
        headers = self._headers(head, target)
        if headers[0].parent != self.cursor.hash:
            return self._roll_back()
        if any(child.parent != parent.hash for parent, child in pairwise(headers)):
            raise _Moved
        requests = [self._logs_request(blockHash="0x" + block.hash.hex()) for block in headers]
        answers = [_list_of(answer) for answer in self._chain.rpc.batch(requests)]
        confirm_blocks(self._chain, headers, requests, answers)
        found = [self._block(block, raws) for block, raws in zip(headers, answers, strict=True)]
        self.cursor = self.cursor.advanced(headers, final)
        return [events for events in found if events.logs or events is found[-1]]

    def _headers(self, head: Block, target: int) -> list[Block]:
        wanted = range(self.cursor.number + 1, target + 1)
        if len(wanted) == 1 and target == head.number:
            return [head]
        headers = self._chain.blocks(wanted)
        if [header.number for header in headers] != list(wanted):
            raise _Moved
        return headers

    def _backfill(self, last: int, final: int) -> list[BlockEvents] | Rollback:
        first = self.cursor.number + 1
        fetched, self._fetched = self._fetched, None
        if fetched is None or fetched.first != first or fetched.last > last:
            fetched = self._fetch(first, min(last, first + self._range - 1), None)
        joint, end, raw_logs = fetched.answers.result()
        width = fetched.last - first + 1
        if isinstance(raw_logs, RpcFault):
            self._narrow(width, raw_logs)
            return self._backfill(last, final)
        if not joint or not end or isinstance(joint, RpcFault) or isinstance(end, RpcFault):
            raise _Moved  # the endpoint does not know the end of the range: logs may be missing
        if block_of(joint).parent != self.cursor.hash:
            return self._roll_back()
        raws = _list_of(raw_logs)
        confirm_range(self._chain, fetched.requests, raws, end)
        self._widen(width, len(raws))
        if self._ahead and fetched.last < final:
            self._fetched = self._fetch(fetched.last + 1, min(final, fetched.last + self._range), self._ahead)
        found = self._grouped(raws, range(first, fetched.last + 1), block_of(end))
        self.cursor = self.cursor.advanced([events.block for events in found], final)
        return found

    def _fetch(self, first: int, last: int, executor: Executor | None) -> _Fetched:
        """Requests a range, in ``executor`` if given."""
        logs = self._logs_request(fromBlock=hex(first), toBlock=hex(last))
        # In this order: an endpoint that is catching up has the last block before it reads the logs.
        requests = (_header_request(first), _header_request(last), logs)
        if executor is not None:
            return _Fetched(first, last, requests, executor.submit(self._chain.rpc.batch, requests))
        answers: Future[list[Any]] = Future()
        answers.set_result(self._chain.rpc.batch(requests))
        return _Fetched(first, last, requests, answers)

    def _narrow(self, width: int, fault: RpcFault) -> None:
        """Halves the range, which was too wide for the endpoint, and keeps below it."""
        if width == 1:
            raise fault
        self._range, self._widest, self._granted = width // 2, width - 1, 0

    def _widen(self, width: int, logs: int) -> None:
        """Doubles the range, as far as its logs fit an answer and no such range was refused of late."""
        self._granted += 1
        if self._granted % TRIED_AFTER == 0:
            self._widest = min(2 * self._widest, WIDEST_RANGE)
        self._range = max(1, min(2 * self._range, width * FITTING_LOGS // max(logs, 1), self._widest))

    def _grouped(self, raws: list[dict[str, Any]], blocks: range, end: Block) -> list[BlockEvents]:
        by_block: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for number, together in groupby(raws, itemgetter("blockNumber")):
            by_block[int(number, 16)] += together
        by_block.setdefault(end.number, [])
        if any(number not in blocks for number in by_block):
            raise ValueError("logs of blocks outside the range")
        times = self._timestamps(by_block, end)
        return [
            self._block(end if number == end.number else _sparse(number, by_block[number], times[number]), of_block)
            for number, of_block in sorted(by_block.items())
        ]

    def _timestamps(self, by_block: dict[int, list[dict[str, Any]]], end: Block) -> dict[int, int]:
        """Returns block times, from the logs if the endpoint includes them, else from headers in one round trip."""
        times = {end.number: end.timestamp}
        missing = []
        for number, raws in by_block.items():
            if number != end.number and raws[0].get("blockTimestamp"):
                times[number] = int(raws[0]["blockTimestamp"], 16)
            elif number != end.number:
                missing.append(number)
        times |= {block.number: block.timestamp for block in self._chain.blocks(missing)}
        if len(times) != len(by_block):
            raise _Moved
        return times

    def _block(self, block: Block, raws: list[dict[str, Any]]) -> BlockEvents:
        """Returns a block with its logs, after checking that they belong to it and are in order."""
        if any(bytes.fromhex(told[2:]) != block.hash for told in {raw["blockHash"] for raw in raws}):
            raise _Moved
        contract_of = self._contract_of
        found = [log_of(raw, contract_of[raw["address"].lower()], block) for raw in raws]
        logs = tuple([log for log in found if log is not None])
        if any(later.log_index <= earlier.log_index for earlier, later in pairwise(logs)):
            raise ValueError("logs out of order")
        return BlockEvents(block, logs)

    def _logs_request(self, **where: str) -> RpcRequest:
        return RpcRequest("eth_getLogs", (where | {"address": list(self._chain.deployment.addresses)},))

    # Blocks before it

    def _behind(self, head: Block) -> list[BlockEvents] | Rollback:
        """Handles a head that is not above the cursor: a lagging endpoint, or a shorter chain that replaced ours."""
        known = dict(self.cursor.known)
        if known.get(head.number, head.hash) == head.hash:
            return []
        return self._roll_back()

    def _roll_back(self) -> Rollback:
        """Goes back to the newest known block that is still canonical."""
        ancestors = self.cursor.ancestors
        answers = self._chain.rpc.batch([_header_request(number) for number, _ in ancestors])
        for (number, block_hash), answer in reversed(list(zip(ancestors, answers, strict=True))):
            if isinstance(answer, RpcFault):
                raise answer
            if answer and block_of(answer).hash == block_hash:
                self.cursor = self.cursor.back_to(block_hash)
                return Rollback(number, self.cursor)
        return self._halt()

    def _halt(self) -> Rollback:
        """Halts if every endpoint has another block in the place of the oldest known one."""
        oldest, known = self.cursor.known[0]
        for endpoint in (self._chain.rpc, *self._chain.witnesses):
            header = endpoint.call("eth_getBlockByNumber", hex(oldest), False)
            if not header:
                raise Unavailable(
                    f"the RPC at {endpoint.url} does not know block {oldest}, which was read before; let it catch up"
                )
            if block_of(header).hash == known:
                raise Unavailable(f"RPC endpoints disagree about block {oldest}, which is final")
        raise FinalityMoved(
            f"the chain at {self._chain.rpc.url} no longer holds block {oldest}, which was final: "
            "stop, compare with another RPC, and rebuild from the start block once the chain is stable"
        )


def _header_request(number: int) -> RpcRequest:
    return RpcRequest("eth_getBlockByNumber", (hex(number), False))


def _sparse(number: int, raws: list[dict[str, Any]], timestamp: int) -> Block:
    return Block(number, bytes.fromhex(raws[0]["blockHash"][2:]), None, timestamp)


def _list_of(answer: Any) -> list[dict[str, Any]]:
    if isinstance(answer, RpcFault):
        raise answer
    if not isinstance(answer, list):
        raise TypeError("logs are not a list")
    return answer
