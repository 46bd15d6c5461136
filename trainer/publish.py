"""Publishing of a version: chunks and signed manifest to the origin's store, then root and consumed jobs on chain."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from protocol.broadcast import publishing
from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT, VersionStore
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Consumption
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire.auth import Signer
from protocol.wire.manifest import Authority, SignedManifest
from protocol.wire.pins import PinnedFile, UnfitCheckpoint, check_directory
from trainer.policy import Policy

DIRECTORIES_KEPT = 2


class Publisher:
    """Publishes one run's checkpoints with the trainer key. Every step is idempotent."""

    def __init__(
        self,
        chain: Chain,
        sender: Sender,
        signer: Signer,
        run: int,
        pins: Sequence[PinnedFile],
        store: VersionStore,
        model: Path,
        folder: Path,
    ) -> None:
        """Takes the pins of the run's rules and the model that the run was opened with, version 0.

        Later versions go under ``folder``.
        """
        self.chain, self.sender, self.signer, self.run, self.pins = chain, sender, signer, run, pins
        self.store, self.model, self.folder = store, model, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._encoding = ThreadPoolExecutor(1, "deltas")
        self.log = structlog.get_logger("trainer.publish")

    def newest_version(self) -> int:
        """Returns the newest version of the run on chain."""
        return self.chain.latest().run(self.run).version

    def publish(self, policy: Policy, consumed: Sequence[Consumption], files: Mapping[str, bytes]) -> None:
        """Serves the policy's version with ``files`` of its own, and announces it unless it is on chain already.

        Raises:
            Misconfigured: the version is not what the rules pin: every node would refuse it.
            Reverted: the contract refused the announcement.
            Rejected: the chain has this version with another manifest root.
        """
        version = policy.version
        directory = self._path(version)
        if not directory.exists():
            policy.save_weights(directory, files)
        self.check(version, directory)
        self.sender.tend()
        needed = policy.rules.async_level + 1
        signed = publishing.publish(
            directory,
            self.run,
            version,
            self.chain.chain_id,
            self.chain.deployment.address_of("Market"),
            self.signer,
            self.store,
            versions_kept=max(DEFAULT_VERSIONS_KEPT, needed),
            least_kept=needed,
        )
        on_chain = self.chain.latest().manifest_root(self.run, version)
        if on_chain == bytes(32):
            call = calls.publish(self.chain.deployment, self.run, version, signed.manifest.root, consumed)
            self.sender.send(f"publish/{self.run}/{version}", call)
        elif on_chain != signed.manifest.root:
            raise Rejected(f"version {version} is on chain with another manifest root than this trainer's weights")
        self._encoding.submit(self._encode, directory, signed)
        self._prune(version)
        self.log.info("published", version=version, root="0x" + signed.manifest.root.hex())

    def _encode(self, directory: Path, signed: SignedManifest) -> None:
        """Makes the deltas that lead to a published version from all but the last, while training goes on."""
        authority = Authority(self.chain.chain_id, self.chain.deployment.address_of("Market"), self.signer.address)
        try:
            publishing.make_deltas(directory, signed, authority, self.signer, self.store)
        except Exception as error:  # nobody reads the result of this thread's work
            self.log.warning("deltas_not_made", version=signed.manifest.version, error=repr(error))

    def check(self, version: int, directory: Path) -> None:
        """Raises ``Misconfigured`` if a version is not what the rules pin: every node would refuse it."""
        try:
            check_directory(directory, self.pins)
        except UnfitCheckpoint as error:
            raise Misconfigured(f"version {version} is not published: {error}") from error

    def directory(self, version: int) -> Path:
        """Returns the directory of a published version; raises `Unavailable` if its weights are no longer stored."""
        if (path := self.stored(version)) is None:
            raise Unavailable(f"the weights of version {version} of run {self.run} are no longer stored here")
        return path

    def stored(self, version: int) -> Path | None:
        """Returns the directory of a published version, None if its weights are no longer stored.

        Raises:
            Unavailable: the chain, which knows its root, does not answer.
        """
        path = self._path(version)
        if path.exists():
            return path
        signed = self.store.manifest(self.run, version, self.chain.latest().manifest_root(self.run, version))
        return self.store.folder(signed) if signed is not None and self.store.verify(signed) else None

    def withdraw(self, version: int) -> None:
        """Deletes the weights of a version that the chain refused; another will get this number."""
        shutil.rmtree(self.folder / str(version), ignore_errors=True)

    def _path(self, version: int) -> Path:
        return self.folder / str(version) if version else self.model

    def _prune(self, version: int) -> None:
        for old in self.folder.iterdir():
            if old.name.isdigit() and int(old.name) <= version - DIRECTORIES_KEPT:
                shutil.rmtree(old)
