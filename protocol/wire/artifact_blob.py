"""Blobs of artifacts: the bytes that anyone can keep and serve under an artifact's root, and anyone can check by it.

    head   bytes32 rollouts root ‖ bytes32 keccak256 of the file ‖ uint64 size of the file, big-endian
    root   keccak(abi.encode("assize/file/1", rollouts root, file hash, uint64 size))
    blob   head ‖ file

The root is what a node signs and what stands on chain. It binds the file's bytes besides the rollouts in them, so that
what a holder sends either is what was signed or is known not to be before any of it is parsed. The rollouts root is
defined in ``protocol.wire.rollout``. PURE.
"""

from __future__ import annotations

from dataclasses import dataclass

from eth_abi import encode as abi_encode
from eth_hash.auto import keccak

from protocol.errors import Rejected

DOMAIN = "assize/file/1"
HEAD_BYTES = 72


@dataclass(frozen=True, slots=True)
class ArtifactHead:
    """Contents of an artifact's root: the root of its rollouts, and keccak256 and size of its file."""

    rollouts_root: bytes
    file_hash: bytes
    size: int

    @property
    def root(self) -> bytes:
        """The artifact's root, 32 bytes."""
        types = ["string", "bytes32", "bytes32", "uint64"]
        return keccak(abi_encode(types, (DOMAIN, self.rollouts_root, self.file_hash, self.size)))

    @property
    def packed(self) -> bytes:
        """The 72 bytes before the file."""
        return self.rollouts_root + self.file_hash + self.size.to_bytes(8, "big")


def head_of(rollouts_root: bytes, file: bytes) -> ArtifactHead:
    """Returns the head of ``file``, whose rollouts have this root."""
    return ArtifactHead(rollouts_root, keccak(file), len(file))


def parse_head(data: bytes, root: bytes) -> ArtifactHead:
    """Returns the head at the start of a blob.

    Raises:
        Rejected: ``data`` does not begin with the head that ``root`` commits to.
    """
    if len(data) >= HEAD_BYTES:
        head = ArtifactHead(data[:32], data[32:64], int.from_bytes(data[64:HEAD_BYTES], "big"))
        if head.root == root:
            return head
    raise Rejected(f"the bytes are not those of the artifact 0x{root.hex()}: their head has another root")


def parse_blob(data: bytes, root: bytes) -> tuple[ArtifactHead, bytes]:
    """Returns the head and the file of the blob of the artifact ``root``.

    Raises:
        Rejected: ``data`` is anything else.
    """
    head, file = parse_head(data, root), data[HEAD_BYTES:]
    if len(file) != head.size or keccak(file) != head.file_hash:
        raise Rejected(f"the bytes are not those of the artifact 0x{root.hex()}: their file has another size or hash")
    return head, file
