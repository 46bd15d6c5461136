"""Policies by version: fetched through relays, checked against the chain, swapped into one network in place."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import structlog

from protocol.errors import Unavailable
from protocol.tensor.model import Model, load_model
from protocol.transport.chunks import ChunkStore
from protocol.transport.shardcast import Authority, fetch_checkpoint
from protocol.transport.sources import Sources
from protocol.wire.rules import Rules
from protocol.wire.units import parse_shape
from validator.judging.judge import PolicyVersion
from validator.judging.prefill import DTYPES, probe

RETRY_SECONDS = 0.5
"""Pause after a fetch that failed."""

VERSIONS_KEPT = 4
"""Directories kept on disk at least; rounds in flight need those within the async level."""


log = structlog.get_logger()


def load_policy(directory: Path, rules: Rules, device: str = "cpu") -> PolicyVersion:
    """Loads a model directory as the policy that ``rules`` speak of.

    Raises ``Misconfigured`` where it does not load, or does more to logits than its head; ``Rejected`` where it is of
    an architecture whose work units are not defined.
    """
    shape = parse_shape(json.loads((directory / "config.json").read_text()))
    model: Model = load_model(directory, DTYPES[rules.model.dtype])
    model.network.to(device)
    probe(model)
    return PolicyVersion(model, shape)


class Weights:
    """The versions of one run. Fetching happens in a thread of its own; the network is the caller's.

    A version is known by its manifest root too: after a reorganisation the same number may mean other weights.
    """

    def __init__(self, run: int, rules: Rules, sources: Sources, authority: Authority, directory: Path, device: str):
        self._run, self._rules, self._sources, self._authority, self._device = run, rules, sources, authority, device
        self._store = ChunkStore(directory / "chunks")
        self._directory = directory / f"run-{run}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._pool = ThreadPoolExecutor(1, "weights")
        self._fetches: dict[tuple[int, bytes], Future[Path]] = {}
        self._policy: PolicyVersion | None = None
        self._loaded: tuple[int, bytes] | None = None
        self._again_at = 0.0

    @property
    def loaded(self) -> int | None:
        """The version in the network; None before the first."""
        return None if self._loaded is None else self._loaded[0]

    def prepare(self, version: int, root: bytes) -> bool:
        """Sees to it that ``version`` is fetched; returns whether it is there. A failed fetch is begun again."""
        fetch = self._fetches.get((version, root))
        if fetch is None:
            if time.monotonic() >= self._again_at:
                self._fetches[version, root] = self._pool.submit(self._fetch, version, root)
            return False
        if not fetch.done():
            return False
        error = fetch.exception()
        if error is None and not fetch.result().is_dir():
            # It made room for newer ones, and is asked for again: an appeal against what it made.
            del self._fetches[version, root]
            return False
        if error is not None:
            log.warning("weights_not_there", run=self._run, version=version, error=str(error))
            del self._fetches[version, root]
            self._again_at = time.monotonic() + RETRY_SECONDS
        return error is None

    def policy(self, version: int, root: bytes) -> PolicyVersion:
        """Returns the policy of a version that is there, its weights swapped in. The one before is overwritten."""
        directory = self._fetches[version, root].result()
        if self._policy is None:
            self._policy = load_policy(directory, self._rules, self._device)
        elif self._loaded != (version, root):
            self._loaded = None  # until the copy is whole: half of it is no version
            self._policy.model.load_weights(directory)
        self._loaded = (version, root)
        return self._policy

    def wait_for(self, version: int, root: bytes, seconds: float) -> PolicyVersion:
        """Returns the policy of ``version`` once it has been fetched; raises ``Unavailable`` after ``seconds``."""
        give_up = time.monotonic() + seconds
        while not self.prepare(version, root):
            if time.monotonic() > give_up:
                raise Unavailable(f"version {version} of run {self._run} could not be fetched in {seconds:.0f} s")
            time.sleep(0.05)
        return self.policy(version, root)

    def close(self) -> None:
        """Ends the fetches."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._sources.close()

    def _fetch(self, version: int, root: bytes) -> Path:
        destination = self._directory / f"{version:010d}-{root.hex()[:16]}"
        kept = max(VERSIONS_KEPT, self._rules.async_level + 2)
        older = sorted(path for path in self._directory.iterdir() if path != destination and path.is_dir())
        for path in older[:-kept]:
            shutil.rmtree(path, ignore_errors=True)
        return fetch_checkpoint(
            self._sources,
            self._run,
            version,
            root,
            self._authority,
            self._store,
            destination,
            old_directories=older[-1:],
            versions_kept=kept,
        )
