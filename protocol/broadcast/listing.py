"""The list of what a store of versions has, as its server tells it."""

from __future__ import annotations

from protocol.broadcast.version_store import VersionStore
from protocol.wire.api import CheckpointEntry, CheckpointList, DeltaEntry

LISTED = 1024
"""Most versions, and most deltas, that are listed."""


def listed(store: VersionStore, run: int) -> CheckpointList:
    """Returns the newest versions and deltas of a run, whole or arriving."""
    checkpoints = [CheckpointEntry(version=version, root=root) for version, root in store.checkpoints(run)]
    deltas = [
        DeltaEntry(version=each.version, target=each.target, base=each.base, delta=each.root, size=each.size)
        for each in (signed.delta for signed in store.deltas(run))
    ]
    return CheckpointList(checkpoints=checkpoints[-LISTED:], deltas=deltas[-LISTED:])
