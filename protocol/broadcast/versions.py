"""A version from its sources to a directory, by the way that needs the fewest bytes."""

from __future__ import annotations

from pathlib import Path

from protocol.broadcast.deltas.applying import catch_up
from protocol.broadcast.fetching import fetch_chunks, fetch_manifest
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT, VersionStore
from protocol.wire.manifest import Authority


def fetch_checkpoint(
    sources: Sources,
    run: int,
    version: int,
    expected_root: bytes,
    authority: Authority,
    store: VersionStore,
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
) -> Path:
    """Fetches ``version`` into ``store`` and returns its directory there, which appears whole or not at all.

    One that is there already is verified, and what is damaged is fetched again. Chunks that other versions in ``store``
    hold are taken from these; deltas from one of them are used if that needs fewer bytes; the other chunks come from
    ``sources``, several at once.

    Raises:
        Rejected: every source that answered sent another manifest than ``expected_root`` (32 bytes, from the chain), or
            one that the trainer did not sign.
        Unavailable: no source has the manifest, or one of the chunks; or the disk has no room for them.
        UnfitCheckpoint: a chunk has another size than the manifest says.
    """
    signed = fetch_manifest(sources, run, version, expected_root, authority, store)
    if not store.verify(signed):
        catch_up(sources, signed, authority, store)
        fetch_chunks(sources, signed, store)
    directory = store.finish(signed)
    store.retain(run, versions_kept)
    return directory
