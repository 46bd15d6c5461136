"""A node that serves the versions it holds to others, beside its own work, because its owner says so."""

from __future__ import annotations

import threading

from protocol.broadcast.version_store import VersionStore
from protocol.errors import Misconfigured
from protocol.transport.listening import listen


def serve_beside(store: VersionStore, address: str, most_bytes_per_second: int = 0) -> int:
    """Serves ``store`` at ``host:port`` by a thread that ends with the process; returns the port, free for port 0.

    Raises:
        Misconfigured: the address is invalid or in use, or a server's packages are not installed.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Misconfigured(f"invalid address to serve weights at {address!r}: expected host:port, as 0.0.0.0:8730")
    try:
        from protocol.broadcast.server import create_app
        from protocol.broadcast.traffic import Traffic
        from protocol.transport.listening import run_server
    except ImportError as error:
        raise Misconfigured(f"serving weights needs {error.name}: pip install 'assize[relay]'") from error
    listener = listen(host.strip("[]"), int(port))
    app = create_app(store, traffic=Traffic(most_bytes_per_second))
    threading.Thread(target=run_server, args=(app, listener), name="peer", daemon=True).start()
    return int(listener.getsockname()[1])
