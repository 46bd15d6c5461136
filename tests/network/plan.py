"""The network's hosts and addresses, and the delay between any two of them. PURE.

    own address       PREFIX.0.N   where a host's servers listen
    public address    PREFIX.1.N   what others connect to; the network passes connections on to the ports that are open

A name such as ``coordinator.example`` stands for a host's public address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRIVATE_PREFIX = "10.90"
"""Addresses in network namespaces, which nobody outside of them can reach."""
FIRST_NUMBER = 11
LEAST_MILLISECONDS, MOST_MILLISECONDS = 10, 40
"""A host's part of a delay; between two hosts it is the sum of both, so 20 to 80 ms in either direction."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of one party: its name, and the ports at which others may reach it.

    ``behind`` has ports that take the place of an open one in turn, as behind a proxy.
    """

    name: str
    ports: tuple[int, ...] = ()
    behind: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Forward:
    """One port that a host has open: connections to ``public`` are passed on to ``own``, to ``behind`` in turn."""

    public: str
    own: str
    port: int
    behind: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The hosts in an order that numbers them, at most 200, and the first half of their addresses."""

    hosts: Sequence[Host]
    prefix: str = PRIVATE_PREFIX

    def own(self, name: str) -> str:
        """Returns the address at which a host's servers listen."""
        return f"{self.prefix}.0.{FIRST_NUMBER + self._place(name)}"

    def public(self, name: str) -> str:
        """Returns the address at which others reach a host."""
        return f"{self.prefix}.1.{FIRST_NUMBER + self._place(name)}"

    def names(self) -> dict[str, str]:
        """Returns the public address of each host by the name that documents use."""
        return {f"{host.name}.example": self.public(host.name) for host in self.hosts}

    def forwards(self) -> Iterator[Forward]:
        """Yields every open port."""
        for host in self.hosts:
            for port in host.ports:
                yield Forward(self.public(host.name), self.own(host.name), port, dict(host.behind).get(port, (port,)))

    def share(self, name: str) -> float:
        """Returns a host's part of a delay, in seconds."""
        step = (MOST_MILLISECONDS - LEAST_MILLISECONDS) / max(len(self.hosts) - 1, 1)
        return (LEAST_MILLISECONDS + step * self._place(name)) / 1_000

    def shares(self) -> dict[str, float]:
        """Returns the parts of all delays by each host's own and public address, in seconds."""
        addresses = {host.name: (self.own(host.name), self.public(host.name)) for host in self.hosts}
        return {each: self.share(name) for name, pair in addresses.items() for each in pair}

    def _place(self, name: str) -> int:
        return [host.name for host in self.hosts].index(name)
