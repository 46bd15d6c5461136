"""Certificate authorities that HTTPS servers are checked against: certifi's, or those of ``SSL_CERT_FILE`` alone."""

from __future__ import annotations

import functools
import ssl

import httpx

from protocol.errors import Misconfigured


@functools.cache
def certificate_authorities(sockets: type[ssl.SSLSocket] = ssl.SSLSocket) -> ssl.SSLContext:
    """Returns the TLS context that all clients of a process share, since loading certificates takes some 25 ms.

    A client without it loads them again, even if it only ever asks by HTTP.

    Args:
        sockets: the class of the sockets it makes.

    Raises:
        Misconfigured: the variable names a file without certificates.
    """
    try:
        context = httpx.create_ssl_context()
    except OSError as error:
        raise Misconfigured(f"invalid SSL_CERT_FILE: expected certificates in PEM: {error}") from error
    context.sslsocket_class = sockets
    return context
