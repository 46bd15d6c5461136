"""Manifests of deltas: how one version of a run's weights is made from another.

Canonical JSON (sorted keys, no spaces, ASCII), frames in ascending order of file and first chunk:

    {"base":"<64 hex>","base_version":B,"format":"assize/delta/1","frames":[FRAME,…],"target":"<64 hex>","version":V}
    FRAME = {"bytes":N,"count":C,"file":"…","first":I,"hash":"<64 hex>"}

    base, target   manifest roots of the two versions
    frame          makes the chunks [I, I + C) of a file of the target, see ``protocol.broadcast.deltas.frames``
    hash           BLAKE3-256 of the frame
    root           keccak(canonical JSON), signed by whoever made the delta as EIP-712 `Delta`

A delta is never trusted: what it makes is checked by the target's manifest, whose root is on chain. The signature only
says whose fault a wrong one is. It is sent as {"delta":{…},"run":R,"signature":"0x…"}. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from eth_utils import keccak
from pydantic import Field

from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.canonical import Canonical, InHex, Signature
from protocol.wire.manifest import MAX_MANIFEST_BYTES, Chunk, FileName

FRAMES_FILE = "frames"
"""The file of a stored delta that holds its frames, one after another."""
MAX_FRAME_BYTES = 64 << 20

_Digest = Annotated[bytes, InHex("^[0-9a-f]{64}$", prefix="")]


@dataclass(frozen=True, slots=True)
class DeltaFrame:
    """A frame of ``size`` bytes, which makes ``count`` chunks of ``file`` from chunk ``first`` on."""

    file: FileName
    first: Annotated[int, Field(ge=0, lt=1 << 32)]
    count: Annotated[int, Field(ge=1, lt=1 << 32)]
    size: Annotated[int, Field(ge=1, le=MAX_FRAME_BYTES, alias="bytes")]
    hash: _Digest


@dataclass(frozen=True)  # without slots, so that its root is hashed once
class DeltaManifest:
    """The frames that make the version with the manifest root ``target`` from the one with ``base``."""

    version: Annotated[int, Field(ge=0, lt=1 << 32)]
    target: _Digest
    base_version: Annotated[int, Field(ge=0, lt=1 << 32)]
    base: _Digest
    frames: Annotated[tuple[DeltaFrame, ...], Field(min_length=1)]
    format: Literal["assize/delta/1"] = "assize/delta/1"

    @property
    def canonical(self) -> bytes:
        """The JSON bytes whose keccak is the root."""
        return _DELTA.encode(self)

    @cached_property
    def root(self) -> bytes:
        """The 32 bytes that are signed."""
        return keccak(self.canonical)

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(frame.size for frame in self.frames)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file of the stored delta, by name."""
        return {FRAMES_FILE: self.size}

    def chunks(self) -> Iterator[Chunk]:
        """Yields each frame as a chunk of the stored delta's file, in order."""
        offset = 0
        for frame in self.frames:
            yield Chunk(FRAMES_FILE, offset, frame.size, frame.hash)
            offset += frame.size


@dataclass(frozen=True, slots=True)
class SignedDelta:
    """A delta's manifest, the run it belongs to, and its maker's 65-byte signature."""

    delta: DeltaManifest
    run: Annotated[int, Field(ge=0, lt=1 << 256)]
    signature: Signature

    @property
    def manifest(self) -> DeltaManifest:
        """The delta's manifest, under the name that a store knows."""
        return self.delta

    @property
    def canonical(self) -> bytes:
        """The JSON bytes that are sent."""
        return _SIGNED.encode(self)

    def maker(self, chain_id: int, market: str) -> str:
        """Returns the address that signed it for this run of ``market`` on this chain, or raises `Rejected`."""
        return auth.recover(_message(self.delta, self.run, chain_id, market), self.signature)


def sign(delta: DeltaManifest, run: int, chain_id: int, market: str, signer: auth.Signer) -> SignedDelta:
    """Returns ``delta`` signed by its maker for ``run``."""
    return SignedDelta(delta, run, signer.sign_typed(_message(delta, run, chain_id, market)))


def parse_signed(data: bytes) -> SignedDelta:
    """Returns the signed delta in ``data``, its signature not yet verified; raises `Rejected` unless canonical."""
    signed = _SIGNED.decode(data)
    delta = signed.delta
    if delta.base == delta.target:
        raise Rejected("invalid delta: expected two versions")
    for frame, following in pairwise(delta.frames):
        if (frame.file, frame.first + frame.count) > (following.file, following.first):
            raise Rejected("invalid delta: expected frames in ascending order, each chunk at most once")
    return signed


def _message(delta: DeltaManifest, run: int, chain_id: int, market: str) -> auth.TypedData:
    return auth.delta(chain_id, market, run, delta.version, delta.root)


_DELTA = Canonical(DeltaManifest, "delta", MAX_MANIFEST_BYTES)
_SIGNED = Canonical(SignedDelta, "signed delta", MAX_MANIFEST_BYTES)
