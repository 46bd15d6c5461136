"""Traffic of one server of weights: bytes sent by kind and by peer, and the cap on what goes out."""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts

from prometheus_client import Counter

SENT = Counter("assize_weights_sent_bytes", "Bytes of weights sent", ["kind"])
CHUNKS, FRAMES = "chunks", "frames"
PEERS_KEPT = 1024
"""Peers that are counted one by one; anyone may come from any number of addresses."""


class Pacer:
    """A cap in bytes per second on what several threads or tasks move together; 0 is none."""

    def __init__(self, most_bytes_per_second: int = 0) -> None:
        self._most, self._paid_until, self._lock = most_bytes_per_second, 0.0, threading.Lock()

    def wait_for(self, size: int) -> float:
        """Takes ``size`` bytes into account, and returns the seconds to wait until they are within the cap."""
        if not self._most:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._paid_until = max(now, self._paid_until) + size / self._most
            return self._paid_until - now


class Traffic:
    """Bytes that a server has sent since its start. Threads may share it."""

    def __init__(self, most_bytes_per_second: int = 0) -> None:
        self.pacer, self.capped = Pacer(most_bytes_per_second), most_bytes_per_second > 0
        self.by_kind: Counts[str] = Counts()
        self._by_peer: Counts[str] = Counts()
        self._lock = threading.Lock()

    def sent(self, kind: str, peer: str, size: int) -> None:
        """Counts bytes of an answer."""
        SENT.labels(kind).inc(size)
        with self._lock:
            self.by_kind[kind] += size
            if peer in self._by_peer or len(self._by_peer) < PEERS_KEPT:
                self._by_peer[peer] += size

    def peers(self, most: int) -> list[tuple[str, int]]:
        """Returns the peers that took the most bytes, most first."""
        with self._lock:
            return self._by_peer.most_common(most)
