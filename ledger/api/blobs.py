"""Blobs: artifacts, evidence and rules by their hashes, from the coordinators that the operator named.

Files of checkpoints, such as tokenizers, come from the relays that the operator named. No text of a node, such as the
URI of a submission, ever chooses an address. Bytes are checked against their hash before anyone sees them. There is one
fetch of a blob at a time; the newest blobs are kept, up to a number of bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from blake3 import blake3

from protocol.broadcast.fetching import fetch_file, fetch_manifest
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.deadlines import within
from protocol.errors import AssizeError, Rejected, Unavailable, accessing
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.evidence import SignedEvidence, parse_signed
from protocol.wire.manifest import Authority
from protocol.wire.pins import PinnedFile
from protocol.wire.rules import Rules, decode_rules, encode_rules

MOST_BYTES = 32 << 20
"""Most bytes of a blob; a larger one is not passed on."""
KEPT_BYTES = 64 << 20
"""Most bytes of all blobs kept."""
FETCH_SECONDS = 30.0
"""Longest time that a coordinator or a relay may take over one blob."""
FETCHES = 4
"""Most blobs that are fetched at once; more wait."""
WAITING = 32
"""Most fetches under way, and most requests that wait for one: a further one is refused, so that others get through."""

BlobKind = Literal["artifact", "evidence", "rules"]


class BlobName(NamedTuple):
    """Kind and hash of a blob; ``signers`` are keys, one of which must have signed it, if it is evidence.

    A bundle's root says nothing of its signature, of which a coordinator may have a false one. Without ``signers`` it
    is not verified.
    """

    kind: str
    hash: bytes
    signers: tuple[str, ...] = ()


class NoBytes(Rejected):
    """No source was named that has the bytes."""


@dataclass(frozen=True, slots=True)
class VersionPlace:
    """A published version, as the chain has it: its run, number, manifest root, and who signed the manifest."""

    run: int
    version: int
    root: bytes
    authority: Authority


class BlobSource:
    """Artifacts, evidence and rules of ``coordinators``, asked in their order, and files of checkpoints of ``relays``.

    Threads may share it.

    Raises:
        Misconfigured: invalid URL.
    """

    def __init__(self, coordinators: Iterable[str] = (), relays: Sequence[str] = ()) -> None:
        self._clients = [CoordinatorClient(url) for url in coordinators]
        self._relays = Sources(relays) if relays else None
        self._lock = threading.Lock()
        self._kept: OrderedDict[BlobName, bytes] = OrderedDict()
        self._under_way: dict[BlobName, Future[bytes]] = {}
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
        if self._relays is not None:
            self._relays.close()

    def get(self, kind: BlobKind, root: bytes, seconds: float = FETCH_SECONDS, signers: tuple[str, ...] = ()) -> bytes:
        """Returns the blob with this hash: head and file of an artifact, evidence and its signature, or rules.

        A fetch that takes longer than ``seconds`` goes on for later callers.

        Raises:
            NoBytes: no coordinator is named, or none has bytes of this hash, signed by one of ``signers`` if given.
            Unavailable: a coordinator does not answer in time, or too many requests wait.
        """
        name = BlobName(kind, root, signers)
        return self._shared(name, lambda: self._fetched(name), seconds)

    def begin(self, names: Iterable[BlobName]) -> None:
        """Begins to fetch blobs that will be asked for, as many as there is room for."""
        with self._lock:
            for name in names:
                if self.named and not (name in self._kept or name in self._under_way or self._full):
                    self._begun(name, lambda name=name: self._fetched(name))  # type: ignore[misc]

    def rules(self, rules_hash: bytes, seconds: float = FETCH_SECONDS) -> Rules:
        """Returns the rules with this hash; raises as ``get``."""
        return decode_rules(self.get("rules", rules_hash, seconds), rules_hash)

    def file(self, place: VersionPlace, pin: PinnedFile, seconds: float = FETCH_SECONDS) -> bytes:
        """Returns a file without tensors that a run's rules pin, as a version of the run has it.

        Raises:
            NoBytes: no relay is named, the file is too large, or the version has another one.
            Unavailable: no relay has it, or answers in time.
        """
        return self._shared(BlobName("file", pin.hash), lambda: self._pinned(place, pin), seconds)

    @property
    def _full(self) -> bool:
        return len(self._under_way) >= WAITING

    def _shared(self, key: BlobName, fetched: Callable[[], bytes], seconds: float) -> bytes:
        """Returns what is kept, or the result of the one fetch that is under way."""
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
            fetch = self._under_way.get(key)
            if fetch is None and self._full:
                raise Unavailable("too many artifacts and bundles of evidence are being fetched: try again later")
            fetch = fetch or self._begun(key, fetched)
        if not self._waiting.acquire(blocking=False):
            raise Unavailable("too many requests wait for artifacts and evidence: try again later")
        try:
            return fetch.result(seconds)
        except TimeoutError:
            raise Unavailable(f"{_named(key)} is still being fetched: try again later") from None
        finally:
            self._waiting.release()

    def _begun(self, key: BlobName, fetched: Callable[[], bytes]) -> Future[bytes]:
        """Begins a fetch in a thread of its own; the lock is held."""
        fetch = self._under_way[key] = Future()
        threading.Thread(target=self._run, args=(key, fetched, fetch), name="ledger-blob", daemon=True).start()
        return fetch

    def _run(self, key: BlobName, fetched: Callable[[], bytes], fetch: Future[bytes]) -> None:
        try:
            with self._fetching, within(FETCH_SECONDS):
                data = fetched()
        except Exception as error:  # it is the waiting threads' to handle
            self._ended(key, None)
            fetch.set_exception(error)
        else:
            self._ended(key, data)
            fetch.set_result(data)

    def _ended(self, key: BlobName, data: bytes | None) -> None:
        with self._lock:
            del self._under_way[key]
            if data is not None:
                self._kept[key] = data
            while sum(map(len, self._kept.values())) > KEPT_BYTES:
                self._kept.popitem(last=False)

    def _fetched(self, name: BlobName) -> bytes:
        """Returns the blob from the first coordinator that has it."""
        if not self.named:
            raise NoBytes(f"{_named(name)} is not on the chain, and this ledger asks no coordinator for it")
        failures = list[AssizeError]()
        for client in self._clients:
            try:
                return _ASKED[name.kind](client, name)
            except (Unavailable, Rejected) as error:
                failures.append(error)
        if any(isinstance(error, Unavailable) for error in failures):
            raise Unavailable(f"the coordinator that this ledger asks for {_named(name)} does not answer")
        raise NoBytes(f"the coordinator that this ledger asks does not have {_named(name)}") from failures[0]

    def _pinned(self, place: VersionPlace, pin: PinnedFile) -> bytes:
        if self._relays is None:
            raise NoBytes(f"this ledger asks no relay for {pin.name}")
        if pin.size > MOST_BYTES:
            raise NoBytes(f"{pin.name} has {pin.size} bytes, expected at most {MOST_BYTES}")
        at = (place.run, place.version, place.root, place.authority)
        try:
            with accessing("write to a temporary folder", Unavailable), TemporaryDirectory() as folder:
                signed = fetch_manifest(self._relays, *at, VersionStore(Path(folder)))
            data = fetch_file(self._relays, signed, pin.name, MOST_BYTES)
        except (Rejected, Unavailable) as error:
            kind = NoBytes if isinstance(error, Rejected) else Unavailable
            raise kind(f"no relay that this ledger asks has the {pin.name} of run {place.run}") from error
        if data is None or blake3(data).digest() != pin.hash:
            raise NoBytes(f"version {place.version} of run {place.run} does not have the {pin.name} of its rules")
        return data


def _named(name: BlobName) -> str:
    return f"{'the artifact' if name.kind == 'artifact' else name.kind} 0x{name.hash.hex()}"


def _artifact(client: CoordinatorClient, name: BlobName) -> bytes:
    return client.blob(name.hash, MOST_BYTES)


def _evidence(client: CoordinatorClient, name: BlobName) -> bytes:
    data = client.evidence(name.hash, MOST_BYTES)
    signed = parse_signed(data, name.hash)
    if name.signers and not any(_is_signed(signed, key) for key in name.signers):
        raise Rejected("the evidence is not signed by a juror whose vote names it")
    return data


def _is_signed(signed: SignedEvidence, key: str) -> bool:
    try:
        signed.verify(key)
    except Rejected:
        return False
    return True


def _rules(client: CoordinatorClient, name: BlobName) -> bytes:
    return encode_rules(client.rules(name.hash))


_ASKED: dict[str, Callable[[CoordinatorClient, BlobName], bytes]] = {
    "artifact": _artifact,
    "evidence": _evidence,
    "rules": _rules,
}
