"""Other nodes' submissions from public sources: leaves from the chain, files from the addresses they name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deploy.adversaries.replaying import Overheard
from protocol.chain.events import Submitted
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.errors import AssizeError
from protocol.transport.artifacts import fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.wire.artifact_blob import parse_blob
from protocol.wire.assignments import LEAF_BYTES, unpack_leaves
from protocol.wire.receipts import places_of

LIMIT_BYTES = 16 << 20
KEPT = 64
"""Jobs kept: more than one node has in a round."""


class Listener:
    """Returns the latest submissions when called, oldest first; fetches each file once."""

    def __init__(self, rpc_url: str, addresses: Path, coordinator_url: str) -> None:
        self._tail, self._stores = (
            Tail(Chain.connect(rpc_url, addresses)),
            BlobStores(trusted=lambda: [coordinator_url]),
        )
        self._heard: list[Overheard] = []

    def __call__(self) -> Sequence[Overheard]:
        """Returns the latest jobs of any node whose files could be fetched."""
        while blocks := self._tail.poll():
            if isinstance(blocks, Rollback):
                self._tail.cursor = blocks.cursor
                continue
            for event in (log.event for block in blocks for log in block.logs):
                if isinstance(event, Submitted):
                    self._hear(event)
        self._heard = self._heard[-KEPT:]
        return self._heard

    def _hear(self, submitted: Submitted) -> None:
        for start in range(0, len(submitted.leaves), LEAF_BYTES):
            (leaf,) = unpack_leaves(submitted.leaves[start : start + LEAF_BYTES])
            try:
                blob = fetch_artifact(self._stores, places_of(submitted.uri), leaf.root, LIMIT_BYTES)
            except AssizeError:
                continue  # no file, nothing to copy
            head, file = parse_blob(blob, leaf.root)
            self._heard.append(Overheard(submitted.round, leaf.job, submitted.node, file, head))
