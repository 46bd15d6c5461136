"""Listening sockets, bound before anything else starts, so that a port in use is reported in one sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import Misconfigured
from protocol.garbage import collect_rarely

if TYPE_CHECKING:
    from starlette.types import ASGIApp


GRACE_SECONDS = 10
"""Longest that requests under way may take once a server is told to end."""


def run_server(
    app: ASGIApp,
    listener: socket.socket,
    grace_seconds: int = GRACE_SECONDS,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves ``app`` until the process is told to stop, then up to ``grace_seconds`` more for the requests under way.

    ``ending`` is called before that wait: it ends answers that would go on for good.
    """
    # Imported late, so that nodes without a server's packages never load them.
    import uvicorn

    from protocol.transport.connections import MOST_CONNECTIONS, BoundedConnection, allow_files

    allow_files(3 * MOST_CONNECTIONS)  # a connection may have a file open too
    config = uvicorn.Config(
        app,
        loop="asyncio",  # others do not send files
        http=BoundedConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=grace_seconds,
    )

    class EndingServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            collect_rarely()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            ending()
            await super().shutdown(sockets)

    EndingServer(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0 takes a free port. Raises `Misconfigured` if the address is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given; otherwise small answers take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise Misconfigured(
            f"cannot listen on port {port} of {host} ({error.strerror}); choose another port"
        ) from error
    return listener
