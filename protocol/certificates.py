"""Certificate authorities that HTTPS servers are checked against: certifi's, or those of ``SSL_CERT_FILE``."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def certificate_authorities(sockets: type[ssl.SSLSocket] = ssl.SSLSocket) -> ssl.SSLContext:
    """Returns the TLS context that all clients of a process share, since loading certificates takes some 25 ms.

    A client without it loads them again, even if it only ever asks by HTTP.

    Args:
        sockets: the class of the sockets it makes.
    """
    context = httpx.create_ssl_context()
    context.sslsocket_class = sockets
    return context
