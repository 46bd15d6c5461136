"""Addresses that other parties may make this node connect to: public ones, on the ports that a run allows.

A URL is admitted by its text, and its name is resolved once, for the connection itself: what was checked is what is
connected to, whatever the name resolves to a moment later.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Any

import httpcore
import httpx

from protocol.deadlines import rewired
from protocol.errors import Rejected

MOST_ADDRESSES = 4
"""Addresses of a name that are tried."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_TUNNELS = (ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("2001::/32"))
"""6to4 and Teredo, which lead to an IPv4 address that is part of them."""


def admit(url: str, ports: Collection[int]) -> None:
    """Raises ``Rejected`` unless another party's http(s) URL names a host, or a public address, on one of ``ports``."""
    parsed = httpx.URL(url)
    if parsed.userinfo:
        raise Rejected(f"refused URL {url[:100]!r}: expected no user and no password in it")
    if (parsed.port or _default_port(parsed)) not in ports:
        allowed = ", ".join(map(str, sorted(ports)))
        raise Rejected(f"refused URL {url[:100]!r}: expected one of the ports that the run allows, {allowed}")
    try:
        address = ipaddress.ip_address(parsed.host)
    except ValueError:
        return
    if not is_public(address):
        raise Rejected(f"refused URL {url[:100]!r}: expected a public address")


def origin_of(url: str) -> tuple[str, str, int]:
    """Returns scheme, host and port of an http(s) URL."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port or _default_port(parsed)


def is_public(address: Address) -> bool:
    """Returns whether packets to ``address`` go to the public internet, and to one host of it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif address not in _UNICAST or any(address in tunnel for tunnel in _TUNNELS):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def public_only(client: httpx.Client) -> httpx.Client:
    """Has ``client`` connect to public addresses only, and returns it. It must not use a proxy, which would resolve."""
    return rewired(client, PublicBackend)


class PublicBackend(httpcore.NetworkBackend):
    """Resolves each name once, and connects to the public ones of the addresses found."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *rest: Any, **options: Any
    ) -> httpcore.NetworkStream:
        """Connects to the first of the name's public addresses that takes the connection."""
        failure: httpcore.ConnectError | httpcore.ConnectTimeout = httpcore.ConnectError(
            f"{host} has no public address"
        )
        for address in _resolved(host, port)[:MOST_ADDRESSES]:
            try:
                return self._backend.connect_tcp(address, port, timeout, *rest, **options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _resolved(host: str, port: int) -> list[str]:
    """Returns the public addresses of ``host``."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} cannot be resolved") from error
    addresses = dict.fromkeys(str(each[4][0]) for each in found)
    return [address for address in addresses if is_public(ipaddress.ip_address(address))]


def _default_port(url: httpx.URL) -> int:
    return 443 if url.scheme == "https" else 80
