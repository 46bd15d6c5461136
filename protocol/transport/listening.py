"""A listening socket, taken before anything else starts, so that a taken port is one sentence."""

from __future__ import annotations

import socket

from protocol.errors import Misconfigured


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens there; port 0 takes a free one. ``Misconfigured`` where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named: without it small answers take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise Misconfigured(
            f"cannot listen on port {port} of {host} ({error.strerror}); choose another port"
        ) from error
    return listener
