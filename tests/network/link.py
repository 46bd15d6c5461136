"""What lies between the hosts: every connection to an open port goes through here, late, and one in a hundred is lost.

python -m tests.network.link PLAN.json COUNTS.json

The first file has ``forwards`` (public address, own address, port, ports behind it), ``shares`` (seconds by address),
``lost`` (share of connections) and ``seed``. It prints ``ready`` once it listens, and keeps the figures of all
connections in the second. A lost connection is reset before its first answer is there, whichever stage it is at.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PIECE = 64 << 10
IN_FLIGHT = 64
"""Most pieces on their way in one direction of a connection, more than 100 Mbit/s hold in 80 ms."""
UNKNOWN_SECONDS = 0.025
"""Part of the delay of an address that is none of the plan's."""
KEEP_SECONDS = 1.0

Pieces = asyncio.Queue[tuple[float, bytes]]
"""Pieces of one direction, each with the time at which it is due; an empty one is the end."""


class Link:
    """All connections between hosts."""

    def __init__(self, shares: Mapping[str, float], lost: float, seed: int) -> None:
        self.shares, self.lost, self.chance = shares, lost, random.Random(seed)
        self._carried: set[asyncio.Task[None]] = set()  # the loop refers to a task weakly, and so does a stream
        self.counts = {"connections": 0, "lost": 0, "refused": 0, "bytes": 0}

    async def listen(self, public: str, own: str, port: int, behind: Sequence[int]) -> asyncio.Server:
        """Opens a port of a host."""
        ports = itertools.cycle(behind)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer, own, next(ports))
            writer.transport.abort()

        return await asyncio.start_server(serve, public, port, limit=PIECE, backlog=256)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: str, port: int) -> None:
        source = writer.get_extra_info("peername")[0]
        delay = self.shares.get(source, UNKNOWN_SECONDS) + self.shares[own]
        self.counts["connections"] += 1
        carrying = asyncio.create_task(self._pass_on(reader, writer, own, port, delay))
        self._carried.add(carrying)
        carrying.add_done_callback(self._carried.discard)
        if self.chance.random() < self.lost:
            self.counts["lost"] += 1
            await asyncio.sleep(self.chance.uniform(0, 4 * delay))  # there and back twice: connected, then answered
            carrying.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await carrying
            return
        await carrying

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: str, port: int, delay: float
    ) -> None:
        await asyncio.sleep(2 * delay)
        try:
            inner, inward = await asyncio.open_connection(own, port, limit=PIECE)
        except OSError:
            self.counts["refused"] += 1
            return
        try:
            async with asyncio.TaskGroup() as both:
                for source, target in ((reader, inward), (inner, writer)):
                    pieces: Pieces = asyncio.Queue(IN_FLIGHT)
                    both.create_task(_take(source, pieces, delay))
                    both.create_task(self._give(pieces, target))
        except* OSError:
            pass  # one end is gone
        finally:
            inward.transport.abort()

    async def _give(self, pieces: Pieces, writer: asyncio.StreamWriter) -> None:
        """Sends each piece once it is due, then the end."""
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if not piece:
                writer.write_eof()
                return
            self.counts["bytes"] += len(piece)
            writer.write(piece)
            await writer.drain()


async def _take(reader: asyncio.StreamReader, pieces: Pieces, delay: float) -> None:
    """Reads to the end; each piece is due ``delay`` seconds after it came."""
    piece = b"-"
    while piece:
        piece = await reader.read(PIECE)
        await pieces.put((asyncio.get_running_loop().time() + delay, piece))


async def serve(plan: Mapping[str, Any], counts: Path) -> None:
    """Opens every port, and keeps the figures until told to end."""
    link = Link(plan["shares"], plan["lost"], plan["seed"])
    servers = [await link.listen(*forward) for forward in plan["forwards"]]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    while not ended.is_set():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ended.wait(), KEEP_SECONDS)
        counts.write_text(json.dumps(link.counts))
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])))
