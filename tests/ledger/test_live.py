"""The fan-out of the ledger's newest block to streams of events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from ledger.explorer.freshness import Freshness
from ledger.explorer.live import KEEP_ALIVE, RETRY, LiveFeed, event_of
from ledger.queries.lookup import At
from protocol.errors import Unavailable

LOOK_SECONDS = 0.005


@dataclass
class Chain:
    """A block that grows, and how often it was looked at; None if the database does not answer."""

    block: int | None = 1
    looks: int = 0

    def look(self) -> bytes:
        self.looks += 1
        if self.block is None:
            raise Unavailable("the database is locked")
        return b"event %d" % self.block


@dataclass
class Reader:
    """One reader of a feed, at a host; it takes no more while ``takes`` is not set."""

    feed: LiveFeed
    host: str = "192.0.2.1"
    got: list[bytes] = field(default_factory=list)
    done: bool = False

    def begin(self) -> Reader:
        self.takes, self.gone = asyncio.Event(), asyncio.Event()
        self.takes.set()
        self.task = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        await self.feed.stream(self.host)(scope, self._gone, self._take)

    async def _gone(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _take(self, message: Message) -> None:
        await self.takes.wait()
        self.got.append(message.get("body", b""))
        self.done = message["type"] == "http.response.body" and not message.get("more_body")

    @property
    def events(self) -> list[bytes]:
        return [each for each in self.got if each not in (b"", RETRY)]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(LOOK_SECONDS)


def feed_of(chain: Chain, **options: float) -> LiveFeed:
    return LiveFeed(chain.look, LOOK_SECONDS, **options)  # type: ignore[arg-type]


def running(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_each_reader_gets_the_present_block_at_once_and_each_new_one() -> None:
    async def test() -> None:
        chain = Chain()
        feed = feed_of(chain)
        one = Reader(feed).begin()
        await until(lambda: one.events == [b"event 1"])
        other = Reader(feed).begin()
        await until(lambda: other.events == [b"event 1"])
        assert one.got[:2] == [b"", RETRY]
        chain.block = 2
        await until(lambda: one.events == other.events == [b"event 1", b"event 2"])
        feed.close()
        await asyncio.gather(one.task, other.task)

    running(test)


def test_a_slow_reader_gets_the_newest_block_only_and_delays_no_other() -> None:
    async def test() -> None:
        chain = Chain()
        feed = feed_of(chain)
        slow, quick = Reader(feed).begin(), Reader(feed).begin()
        await until(lambda: slow.events == [b"event 1"])
        slow.takes.clear()
        for block in range(2, 6):
            chain.block = block
            await until(lambda: quick.events[-1] == b"event %d" % chain.block)  # type: ignore[str-format]
        slow.takes.set()
        await until(lambda: slow.events[-1] == b"event 5")
        assert slow.events == [b"event 1", b"event 2", b"event 5"], "the second was on its way already"
        assert len(quick.events) == 5
        feed.close()
        await asyncio.gather(slow.task, quick.task)

    running(test)


def test_one_watcher_looks_for_all_and_for_nobody_not_at_all() -> None:
    async def test() -> None:
        chain = Chain()
        feed = feed_of(chain)
        readers = [Reader(feed).begin() for _ in range(200)]
        await until(lambda: all(each.events for each in readers))
        looks, began = chain.looks, time.monotonic()
        await asyncio.sleep(20 * LOOK_SECONDS)
        assert chain.looks - looks <= (time.monotonic() - began) / LOOK_SECONDS + 1
        for each in readers:
            each.gone.set()
        await asyncio.gather(*(each.task for each in readers))
        await asyncio.sleep(4 * LOOK_SECONDS)
        looks = chain.looks
        await asyncio.sleep(4 * LOOK_SECONDS)
        assert chain.looks == looks
        chain.block = 7
        late = Reader(feed).begin()
        await until(lambda: late.events == [b"event 7"])
        feed.close()
        await late.task

    running(test)


def test_a_silent_ledger_keeps_streams_alive_and_a_database_that_fails_ends_none() -> None:
    async def test() -> None:
        chain = Chain()
        feed = feed_of(chain, keep_alive_seconds=0.05)
        reader = Reader(feed).begin()
        await until(lambda: reader.events[-2:] == [KEEP_ALIVE, KEEP_ALIVE])
        chain.block = None
        await asyncio.sleep(4 * LOOK_SECONDS)
        assert not reader.task.done()
        chain.block = 3
        await until(lambda: b"event 3" in reader.events)
        feed.close()
        await reader.task

    running(test)


def test_streams_end_when_the_server_does_and_none_begins_then() -> None:
    async def test() -> None:
        feed = feed_of(Chain())
        readers = [Reader(feed).begin() for _ in range(3)]
        await until(lambda: all(each.events for each in readers))
        feed.close()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in readers)), 1)
        assert all(each.done for each in readers), "whole answers, not ones broken off"
        late = Reader(feed).begin()
        with pytest.raises(HTTPException) as refused:
            await late.task
        assert refused.value.status_code == 503

    running(test)


def test_beyond_the_bound_a_stream_is_refused_unless_one_network_has_most() -> None:
    async def test() -> None:
        feed = feed_of(Chain(), most_streams=3)
        crowd = [Reader(feed).begin() for _ in range(3)]
        await until(lambda: all(each.events for each in crowd))
        with pytest.raises(HTTPException, match="all live streams of this server are in use"):
            await Reader(feed).begin().task
        guest = Reader(feed, "198.51.100.7").begin()
        await until(lambda: bool(guest.events))
        await crowd[0].task
        assert [each.done for each in crowd] == [True, False, False], "the oldest gives way"
        second = Reader(feed, "198.51.100.7").begin()
        with pytest.raises(HTTPException):
            await second.task
        feed.close()
        await asyncio.gather(guest.task, *(each.task for each in crowd))

    running(test)


def test_an_event_names_the_block_and_the_state_of_the_ledger() -> None:
    here = At(block_number=12, block_hash="0x" + "ab" * 32, final_block=3)
    lines = event_of(here, Freshness("behind", 40, "late")).decode().split("\n")
    assert lines == [
        "event: block",
        f"id: {here.block_hash}",
        f'data: {{"block": 12, "hash": "{here.block_hash}", "state": "behind"}}',
        "",
        "",
    ]
