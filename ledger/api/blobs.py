"""Blobs: artifacts and evidence by their roots, from the coordinators that the operator named.

No text of a node, such as the URI of a submission, ever chooses an address. What a coordinator sends is checked against
its root before anyone sees it. There is one fetch of a root at a time; the newest blobs are kept, up to a number of
bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Literal

from protocol.deadlines import within
from protocol.errors import AssizeError, Rejected, Unavailable
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.evidence import parse_signed

MOST_BYTES = 32 << 20
"""Most bytes of a blob; an artifact or a bundle of evidence that is larger is not passed on."""
KEPT_BYTES = 64 << 20
"""Most bytes of all blobs kept."""
FETCH_SECONDS = 30.0
"""Longest time that a coordinator may take over one blob."""
FETCHES = 4
"""Most blobs that are fetched at once; more wait."""
WAITING = 16
"""Most fetches and most requests that wait for one; a further one is refused, so that other answers get through."""

BlobKind = Literal["artifact", "evidence"]


class NoBytes(Rejected):
    """No coordinator was named that has the bytes."""


class BlobSource:
    """Artifacts and evidence of ``coordinators``, which are asked in their order. Threads may share it.

    Raises:
        Misconfigured: invalid URL.
    """

    def __init__(self, coordinators: Iterable[str] = ()) -> None:
        self._clients = [CoordinatorClient(url) for url in coordinators]
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[BlobKind, bytes], bytes] = OrderedDict()
        self._under_way: dict[tuple[BlobKind, bytes], Future[bytes]] = {}
        self._fetching = threading.BoundedSemaphore(FETCHES)
        self._waiting = threading.BoundedSemaphore(WAITING)

    @property
    def named(self) -> bool:
        """True if the operator named a coordinator."""
        return bool(self._clients)

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients:
            client.close()

    def get(self, kind: BlobKind, root: bytes, seconds: float = FETCH_SECONDS) -> bytes:
        """Returns the blob with this root: an artifact's head and file, or a bundle of evidence and its signature.

        The signature of evidence is not verified. A fetch that takes longer than ``seconds`` goes on for later callers.

        Raises:
            NoBytes: no coordinator is named, or none has bytes of this root.
            Unavailable: a coordinator does not answer in time, or too many requests wait.
        """
        if not self._clients:
            raise NoBytes("the ledger was started without --coordinator, from where artifacts and evidence would come")
        with self._lock:
            if (kept := self._kept.get((kind, root))) is not None:
                self._kept.move_to_end((kind, root))
                return kept
            fetch = self._under_way.get((kind, root)) or self._begun(kind, root)
        if not self._waiting.acquire(blocking=False):
            raise Unavailable("too many requests wait for artifacts and evidence: try again later")
        try:
            return fetch.result(seconds)
        except TimeoutError:
            raise Unavailable(f"the {kind} 0x{root.hex()} is still being fetched: try again later") from None
        finally:
            self._waiting.release()

    def _begun(self, kind: BlobKind, root: bytes) -> Future[bytes]:
        """Begins a fetch in a thread of its own; the lock is held."""
        if len(self._under_way) >= WAITING:
            raise Unavailable("too many artifacts and bundles of evidence are being fetched: try again later")
        fetch = self._under_way[kind, root] = Future()
        threading.Thread(target=self._run, args=(kind, root, fetch), name="ledger-blob", daemon=True).start()
        return fetch

    def _run(self, kind: BlobKind, root: bytes, fetch: Future[bytes]) -> None:
        try:
            with self._fetching:
                data = self._fetched(kind, root)
        except Exception as error:
            self._ended(kind, root, None)
            fetch.set_exception(error)
        else:
            self._ended(kind, root, data)
            fetch.set_result(data)

    def _ended(self, kind: BlobKind, root: bytes, data: bytes | None) -> None:
        with self._lock:
            del self._under_way[kind, root]
            if data is not None:
                self._kept[kind, root] = data
            while sum(map(len, self._kept.values())) > KEPT_BYTES:
                self._kept.popitem(last=False)

    def _fetched(self, kind: BlobKind, root: bytes) -> bytes:
        """Returns the blob from the first coordinator that has it."""
        failures = list[AssizeError]()
        for client in self._clients:
            try:
                with within(FETCH_SECONDS):
                    return _ASKED[kind](client, root)
            except (Unavailable, Rejected) as error:
                failures.append(error)
        if any(isinstance(error, Unavailable) for error in failures):
            raise Unavailable(f"the ledger's coordinator does not answer: the {kind} 0x{root.hex()} may be there later")
        raise NoBytes(f"the ledger's coordinator does not have the {kind} 0x{root.hex()}") from failures[0]


def _artifact(client: CoordinatorClient, root: bytes) -> bytes:
    return client.blob(root, MOST_BYTES)


def _evidence(client: CoordinatorClient, root: bytes) -> bytes:
    data = client.evidence(root, MOST_BYTES)
    parse_signed(data, root)
    return data


_ASKED: dict[BlobKind, Callable[[CoordinatorClient, bytes], bytes]] = {"artifact": _artifact, "evidence": _evidence}
