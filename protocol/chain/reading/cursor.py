"""The place up to which a chain was read, and the blocks to go back to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.chain.block import Block


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last block whose events were returned, and the known blocks before it, oldest first."""

    number: int
    hash: bytes
    ancestors: tuple[tuple[int, bytes], ...] = ()

    @property
    def oldest(self) -> int:
        """Number of the oldest block that a reorganisation may go back to."""
        return self.ancestors[0][0] if self.ancestors else self.number

    def to_json(self) -> str:
        """Returns one line of text for a database column; ``from_json`` reads it back."""
        return json.dumps([self.number, self.hash.hex(), [[number, known.hex()] for number, known in self.ancestors]])

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """Returns the cursor that ``to_json`` wrote."""
        number, block_hash, ancestors = json.loads(text)
        known = tuple((height, bytes.fromhex(digest)) for height, digest in ancestors)
        return cls(number, bytes.fromhex(block_hash), known)

    @property
    def known(self) -> tuple[tuple[int, bytes], ...]:
        """All known blocks, oldest first."""
        return (*self.ancestors, (self.number, self.hash))

    def __contains__(self, block_hash: bytes) -> bool:
        return any(known == block_hash for _, known in self.known)

    def back_to(self, block_hash: bytes) -> Cursor:
        """Returns the cursor as it was at a block that it contains."""
        index = [known for _, known in self.known].index(block_hash)
        return Cursor(*self.known[index], self.ancestors[:index])

    def advanced(self, blocks: Iterable[Block], final: int) -> Cursor:
        """Returns the cursor after these blocks (ascending), with those above height ``final`` and one more."""
        known = [*self.known, *((block.number, block.hash) for block in blocks)]
        number, block_hash = known.pop()
        beyond = [entry for entry in known if entry[0] <= final][-1:]
        return Cursor(number, block_hash, tuple(beyond + [entry for entry in known if entry[0] > final]))
