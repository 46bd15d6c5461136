"""One edge of a network: a proxy to a port of this machine that passes on so many bytes a second in all.

python -m tests.bench.shardcast.edge PORT UPSTREAM BYTES_PER_SECOND CORRUPT   CORRUPT=1: one byte in 512 KiB is changed
"""

from __future__ import annotations

import asyncio
import sys
import time

PIECE = 16 << 10
EACH = 512 << 10


class Edge:
    """The bandwidth of all connections through the proxy, towards the client."""

    def __init__(self, upstream: int, rate: float, corrupt: bool) -> None:
        self.upstream, self.rate, self.corrupt = upstream, rate, corrupt
        self.paid_until, self.passed = 0.0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on in both directions."""
        try:
            above, towards = await asyncio.open_connection("127.0.0.1", self.upstream, limit=PIECE)
        except OSError:
            writer.close()
            return
        tasks = [asyncio.create_task(self.up(reader, towards)), asyncio.create_task(self.down(above, writer))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for stream in (towards, writer):
            stream.close()

    async def up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes requests on."""
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes answers on, at the edge's speed."""
        while data := await reader.read(PIECE):
            now = time.monotonic()
            self.paid_until = max(now, self.paid_until) + len(data) / self.rate
            await asyncio.sleep(self.paid_until - now)
            if self.corrupt and self.passed // EACH != (self.passed + len(data)) // EACH:
                data = data[:-1] + bytes([data[-1] ^ 1])
            self.passed += len(data)
            writer.write(data)
            await writer.drain()


async def main() -> None:
    """Serves until killed."""
    port, upstream, rate, corrupt = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "1"
    server = await asyncio.start_server(Edge(upstream, rate, corrupt).serve, "127.0.0.1", port, limit=PIECE)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
