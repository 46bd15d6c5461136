"""Published files of versions: signed manifests and rewards, read from the relays that the operator named.

A thread reads them ahead of the pages, the newest versions first. Each is checked against the root on chain. They are
kept in a folder, since relays drop old versions, and checked again when they are read from there:

    FOLDER/RUN-VERSION-ROOT.json      signed manifest, canonical
    FOLDER/RUN-VERSION-ROOT.rewards   rewards.json of the version
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import structlog
from sqlalchemy import Connection, select

from ledger.facts import Checkpoint, Consumption
from ledger.queries.lookup import every, newest, terms_at
from ledger.store.database import Database
from ledger.store.rows import fact_of
from ledger.store.tables import TABLES
from protocol.broadcast.fetching import fetch_file, fetch_manifest
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.chain.deployment import Deployment
from protocol.errors import AssizeError, Rejected, Unavailable, accessing
from protocol.files import write_atomically
from protocol.masking import masked
from protocol.transport.http import NotThere
from protocol.wire.assignments import jobs_in
from protocol.wire.manifest import Authority, SignedManifest, hash_chunk, parse_signed
from protocol.wire.pins import REWARDS_FILE
from protocol.wire.rewards import Rewards, parse_rewards

AHEAD = 200
"""Newest checkpoints, of all runs and of each run that a page asked for, whose files are read."""
RUNS_ASKED = 8
"""Runs whose versions are read because a page asked for them, the last ones."""
LOOK_SECONDS = 1.0
"""Time between two looks for new versions."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 3600.0
"""Wait before a version is asked for again that was refused or is not there: the first, doubled up to the longest."""
OUTAGE_SECONDS = 10.0
"""Wait before a version is asked for again if no source answers, which says nothing of the version."""
MOST_REWARDS_BYTES, MOST_MANIFEST_BYTES = 2 << 20, 4 << 20
"""Most bytes of a version's rewards, as validators read them, and of its manifest: that of 200 GB of weights."""
MOST_BYTES = 256 << 20
"""Bytes kept in the folder; beyond that the files that were written first are removed."""
MANIFESTS = 16
"""Manifests kept in memory, the ones asked for last."""
MOST_KNOWN = 20_000
"""Versions whose rewards are kept in memory."""

log = structlog.get_logger()
Place = tuple[int, int, bytes]
"""Run, version and manifest root."""


@dataclass(frozen=True, slots=True)
class VersionRewards:
    """Rewards of the jobs that a version was trained on, as its trainer published them.

    Args:
        mean: of all rollouts; None where there are none.
        rollouts: number of rewards.
        fault: reason for which the mean is not known, or not to be relied on; empty where all is well.
    """

    mean: float | None
    rollouts: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _UnreadVersion:
    """A version to read: its trainer when it was published, and the jobs that the chain says it was trained on."""

    checkpoint: Checkpoint
    trainer: str
    jobs: frozenset[tuple[int, int]]


class PublishedVersions:
    """Files of versions for the pages of one ledger. Threads may share it."""

    def __init__(self, deployment: Deployment, database: Database, urls: Sequence[str], folder: Path) -> None:
        """Reads from the relays and origins ``urls``; raises ``Misconfigured`` if one is not a source of weights."""
        self.urls = tuple(map(masked, urls))
        self.problem = ""
        self._deployment, self._database, self._folder = deployment, database, folder
        self._sources = Sources(urls)
        self._known: OrderedDict[Place, VersionRewards] = OrderedDict()
        self._manifests: OrderedDict[Place, bytes] = OrderedDict()
        self._again: OrderedDict[Place, tuple[float, float]] = OrderedDict()
        self._asked: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="ledger-published", daemon=True)

    def start(self) -> None:
        """Starts reading in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stops reading; a request under way fails."""
        self._stopping.set()
        self._sources.close()

    def rewards(self, run: int, checkpoints: Iterable[Checkpoint]) -> dict[int, VersionRewards]:
        """Returns what is known by now, by version; the others are read next. Does not wait."""
        with self._lock:
            self._asked[run] = None
            self._asked.move_to_end(run)
            _trim(self._asked, RUNS_ASKED)
            known = {each.version: self._known.get(_place(each)) for each in checkpoints}
        return {version: found for version, found in known.items() if found is not None}

    def manifest(self, checkpoint: Checkpoint) -> bytes | None:
        """Returns the signed manifest of a version, which has the root on chain; None if it was not read yet."""
        place = _place(checkpoint)
        with self._lock:
            if (kept := self._manifests.get(place)) is not None:
                self._manifests.move_to_end(place)
                return kept
        signed = self._held_manifest(place)
        if signed is None:
            return None
        with self._lock:
            self._manifests[place] = signed.canonical
            _trim(self._manifests, MANIFESTS)
        return signed.canonical

    def read(self, run: int, seconds: float) -> None:
        """Reads what is missing of a run's newest versions, for so many seconds at most."""
        deadline = time.monotonic() + seconds
        for wanted in self._missing([run]):
            if time.monotonic() > deadline or not self._read(wanted):
                return

    def _follow(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with self._lock:
                asked = list(self._asked)[::-1]
            try:
                for wanted in self._missing([*asked, None]):
                    if self._stopping.is_set() or not self._read(wanted):
                        break
            except AssizeError as error:  # the database does not answer
                log.warning("ledger.published", problem=str(error))

    def _missing(self, runs: Collection[int | None]) -> list[_UnreadVersion]:
        """Returns the versions to read of these runs, None being all, the newest first."""
        now, found = time.monotonic(), dict[Place, _UnreadVersion]()
        with self._database.reading() as connection:
            for checkpoint in (each for run in runs for each in _newest(connection, run)):
                place = _place(checkpoint)
                again = self._again.get(place)
                if place not in found and (place not in self._known if again is None else again[0] <= now):
                    found[place] = _wanted(connection, checkpoint)
        return list(found.values())

    def _read(self, wanted: _UnreadVersion) -> bool:
        """Reads the files of a version; returns False if no source answers."""
        place = _place(wanted.checkpoint)
        try:
            found, self.problem = self._rewards_of(wanted), ""
        except (Rejected, Unavailable) as error:
            outage = isinstance(error, Unavailable) and not isinstance(error, NotThere)
            with self._lock:
                _, wait = self._again.pop(place, (0.0, RETRY_SECONDS))
                again = (OUTAGE_SECONDS, wait) if outage else (wait, min(2 * wait, LONGEST_RETRY_SECONDS))
                self._again[place] = time.monotonic() + again[0], again[1]
                _trim(self._again, MOST_KNOWN)
            says = masked(str(error))
            if isinstance(error, Unavailable):
                self.problem = says
                return not outage
            log.warning("ledger.published", run=place[0], version=place[1], problem=says)
            found = VersionRewards(None, fault=f"refused: {says}")
        else:
            self._again.pop(place, None)
        with self._lock:
            self._known[place] = found
            _trim(self._known, MOST_KNOWN)
        return True

    def _rewards_of(self, wanted: _UnreadVersion) -> VersionRewards:
        signed = self._signed(wanted)
        data = self._file(signed, REWARDS_FILE)
        if data is None:
            return VersionRewards(None, fault="" if wanted.checkpoint.version == 0 else "its trainer published none")
        return summed(parse_rewards(data), wanted.jobs)

    def _signed(self, wanted: _UnreadVersion) -> SignedManifest:
        place = run, version, root = _place(wanted.checkpoint)
        held = self._held_manifest(place)
        if held is not None:
            return held
        authority = Authority(self._deployment.chain_id, self._deployment.market, wanted.trainer)
        with accessing("write to a temporary folder", Unavailable), TemporaryDirectory() as folder:
            signed = fetch_manifest(self._sources, run, version, root, authority, VersionStore(Path(folder)))
        data = signed.canonical
        if len(data) > MOST_MANIFEST_BYTES:
            raise Rejected(f"the manifest has {len(data)} bytes, expected at most {MOST_MANIFEST_BYTES}")
        self._keep(self._path(place, "json"), data)
        return signed

    def _held_manifest(self, place: Place) -> SignedManifest | None:
        with suppress(OSError, Rejected):
            signed = parse_signed(self._path(place, "json").read_bytes())
            if (signed.run, signed.manifest.version, signed.manifest.root) == place:
                return signed
        return None

    def _file(self, signed: SignedManifest, name: str) -> bytes | None:
        manifest = signed.manifest
        file = next((each for each in manifest.files if each.name == name), None)
        if file is None:
            return None
        path = self._path((signed.run, manifest.version, manifest.root), name.partition(".")[0])
        with suppress(OSError):
            data, step = path.read_bytes(), manifest.chunk_bytes
            if tuple(hash_chunk(data[at : at + step]) for at in range(0, len(data), step)) == file.chunks:
                return data
        fetched = fetch_file(self._sources, signed, name, MOST_REWARDS_BYTES)
        if fetched is not None:
            self._keep(path, fetched)
        return fetched

    def _path(self, place: Place, suffix: str) -> Path:
        run, version, root = place
        return self._folder / f"{run}-{version}-{root.hex()}.{suffix}"

    def _keep(self, path: Path, data: bytes) -> None:
        """Writes a file, and removes the oldest ones beyond the room; a full disk costs a request the next time."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
            held = sorted((each.stat().st_mtime_ns, each.stat().st_size, each) for each in self._folder.iterdir())
            over = sum(size for _, size, _ in held) - MOST_BYTES
            for _, size, each in held:
                if over <= 0:
                    break
                each.unlink()
                over -= size
        except OSError as error:
            log.warning("ledger.published", problem=f"cannot write to {self._folder}: {error.strerror}")


def summed(rewards: Rewards, jobs: frozenset[tuple[int, int]]) -> VersionRewards:
    """Returns the sum of the rewards of ``jobs``, those that the chain says a version was trained on. PURE."""
    told = [each for each in rewards.jobs if (each.round, each.job) in jobs]
    values = np.concatenate([each.rewards for each in told]) if told else np.zeros(0, np.float32)
    fault = ""
    if len(told) < len(jobs) or len(told) < len(rewards.jobs):
        fault = f"published for {len(told)} of its {len(jobs)} jobs, and for {len(rewards.jobs) - len(told)} others"
    mean = float(values.astype(np.float64).mean()) if len(values) else None
    return VersionRewards(mean, len(values), fault)


def _newest(connection: Connection, run: int | None) -> tuple[Checkpoint, ...]:
    """Returns the newest checkpoints of a run, or of all."""
    if run is not None:
        return newest(connection, Checkpoint, None, AHEAD, run=run)
    table = TABLES[Checkpoint]
    rows = connection.execute(select(table).order_by(table.c.block_number.desc()).limit(AHEAD))
    return tuple(fact_of(Checkpoint, row) for row in rows)


def _wanted(connection: Connection, checkpoint: Checkpoint) -> _UnreadVersion:
    """Returns a version with its trainer, by the terms in effect when it was published, and its jobs."""
    trainer = terms_at(connection, checkpoint.run, checkpoint.timestamp).trainer
    consumed = every(connection, Consumption, run=checkpoint.run, version=checkpoint.version)
    jobs = frozenset((each.round, job) for each in consumed for job in jobs_in(each.jobs))
    return _UnreadVersion(checkpoint, trainer, jobs)


def _place(checkpoint: Checkpoint) -> Place:
    return checkpoint.run, checkpoint.version, checkpoint.manifest_root


def _trim(table: OrderedDict[Any, Any], most: int) -> None:
    """Removes the oldest entries beyond the most that are kept."""
    while len(table) > most:
        table.popitem(last=False)
