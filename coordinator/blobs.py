"""Stores of artifacts and evidence: an object store that the settings name, or folders of the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from coordinator.settings import CoordinatorSettings
from protocol.errors import Misconfigured
from protocol.transport.blobs import DirectoryBlobs, ObjectBlobs, OwnBlobs
from protocol.transport.objects import Objects, is_object_store

INCOMING = "incoming"
"""Prefix of uploaded files that were not examined yet."""


@dataclass(frozen=True, slots=True)
class KeptBlobs:
    """The coordinator's blobs by what they are. Nodes may upload to ``objects``, a store that signs URLs, if any."""

    artifacts: OwnBlobs
    evidence: OwnBlobs
    trial: OwnBlobs
    objects: Objects | None = None

    @classmethod
    def open(cls, settings: CoordinatorSettings) -> KeptBlobs:
        """Opens the store. Raises ``Misconfigured`` for an invalid URL or credentials."""
        url = settings.objects
        if not url:
            return cls._of(_in_directory(settings.state_dir))
        if not is_object_store(url) or (url.startswith("file:") and not url.startswith("file:///")):
            raise Misconfigured(
                f"invalid objects {url!r}: expected s3://, gs:// or az://bucket/prefix, or file:///path"
            )
        if url.startswith("file:"):
            return cls._of(_in_directory(Path(unquote(urlsplit(url).path))))
        objects = Objects(url)
        return cls._of(lambda name: ObjectBlobs(objects, name), objects if objects.signs else None)

    @classmethod
    def _of(cls, named: Callable[[str], OwnBlobs], objects: Objects | None = None) -> KeptBlobs:
        return cls(named("artifacts"), named("evidence"), named("trial"), objects)


def _in_directory(directory: Path) -> Callable[[str], OwnBlobs]:
    return lambda name: DirectoryBlobs(directory / name)
