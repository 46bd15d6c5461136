"""Batches, packed: the vectors are what the contracts take and hash."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from protocol.chain.structs import SettledLeaves, Submission, pack_parts, pack_submissions
from protocol.errors import Rejected

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "contracts.json").read_text())["batch"]
BATCH = [
    Submission(node, bytes.fromhex(beacon[2:]), bytes.fromhex(leaves[2:]), uri, bytes.fromhex(signature[2:]))
    for node, leaves, beacon, uri, signature in VECTOR["submissions"]
]


def test_a_batch_is_packed_as_the_contracts_take_it() -> None:
    assert "0x" + pack_submissions(BATCH).hex() == VECTOR["signed"]


def test_what_was_taken_of_a_batch_has_its_digest() -> None:
    taken = pack_parts(SettledLeaves(part.node, part.leaves) for part in BATCH)
    assert "0x" + taken.hex() == VECTOR["taken"]
    assert "0x" + keccak(taken).hex() == VECTOR["digest"]


@pytest.mark.parametrize(
    "spoiled",
    [{"leaves": b"\0" * 40}, {"leaves": bytes(41 * 256)}, {"uri": "a" * 2**16}, {"signature": b"\1" * 64}],
    ids=["leaves not whole", "too many leaves", "uri too long", "signature of another length"],
)
def test_a_part_that_does_not_fit_its_packing_is_refused(spoiled: dict[str, object]) -> None:
    with pytest.raises(Rejected, match="of node 4 cannot be packed"):
        pack_submissions([replace(BATCH[0], node=4, **spoiled)])  # type: ignore[arg-type]
