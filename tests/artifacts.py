"""Blobs of any files, as a node makes them that signs whatever it likes."""

from __future__ import annotations

from protocol.errors import Rejected
from protocol.wire.artifact_blob import ArtifactHead, head_of
from protocol.wire.rollout import DEFAULT_LIMITS, Limits, decode, rollouts_root


def signed_head(chain_id: int, rounds: str, file: bytes, limits: Limits = DEFAULT_LIMITS) -> ArtifactHead:
    """The head of a file; one that cannot be read has no rollouts, and so a root of none."""
    try:
        root = rollouts_root(chain_id, rounds, decode(file, limits))
    except Rejected:
        root = bytes(32)
    return head_of(root, file)


def blob_of(chain_id: int, rounds: str, file: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes that a holder serves of a file."""
    return signed_head(chain_id, rounds, file, limits).packed + file
