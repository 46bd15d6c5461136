"""Packed assignments, packed leaves and bitmaps, as the contracts read them.

    assignments   5 bytes a node:   uint32 node ‖ uint8 count − 1
    leaves       41 bytes a job:    uint8 job ‖ uint64 units ‖ bytes32 artifact root
    bitmap       uint256, bit j stands for job j

All integers are big-endian. Jobs are numbered in the order of the assignments, from 0.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from protocol.errors import Rejected

MAX_JOBS = 256
MAX_LEAVES_PER_BATCH = 64
LISTING_BYTES = 5
LEAF_BYTES = 41

_LISTING = struct.Struct(">IB")
_LEAF = struct.Struct(">BQ32s")


@dataclass(frozen=True, slots=True)
class Listing:
    """``count`` consecutive jobs (1 to 256) given to ``node``."""

    node: int
    count: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """One job's claim: work ``units`` (floating-point operations) and the ``root`` of its artifact."""

    job: int
    units: int
    root: bytes


def pack_assignments(listings: Sequence[Listing]) -> bytes:
    """Returns the packed form. Raises ``Rejected`` unless there are 1 to 256 jobs in all."""
    total = sum(listing.count for listing in listings)
    if not 1 <= total <= MAX_JOBS:
        raise Rejected(f"invalid assignments of {total} jobs: expected 1 to {MAX_JOBS}")
    if any(not 1 <= listing.count <= MAX_JOBS for listing in listings):
        raise Rejected(f"invalid listing: expected 1 to {MAX_JOBS} jobs for each node")
    return b"".join(_LISTING.pack(listing.node, listing.count - 1) for listing in listings)


def unpack_assignments(packed: bytes) -> tuple[Listing, ...]:
    """Reads packed assignments. Raises ``Rejected`` for an invalid length or number of jobs."""
    if not packed or len(packed) % LISTING_BYTES:
        raise Rejected(f"invalid assignments of {len(packed)} bytes: expected a multiple of {LISTING_BYTES}")
    listings = tuple(Listing(node, count + 1) for node, count in _LISTING.iter_unpack(packed))
    if sum(listing.count for listing in listings) > MAX_JOBS:
        raise Rejected(f"invalid assignments: expected at most {MAX_JOBS} jobs")
    return listings


def jobs_of(packed: bytes, node: int) -> tuple[int, ...]:
    """Returns the jobs of ``node``, ascending; empty if it is not listed."""
    return tuple(job for job, holder in enumerate(nodes_of(packed)) if holder == node)


def assignee_of(packed: bytes, job: int) -> int:
    """Returns the node that holds ``job``; raises ``Rejected`` if the round has no such job."""
    holders = nodes_of(packed)
    if not 0 <= job < len(holders):
        raise Rejected(f"invalid job {job}: the round has {len(holders)} jobs")
    return holders[job]


def nodes_of(packed: bytes) -> list[int]:
    """Returns the node of each job, in order."""
    return [listing.node for listing in unpack_assignments(packed) for _ in range(listing.count)]


def pack_leaves(leaves: Sequence[Leaf]) -> bytes:
    """Returns the packed form, in ascending order of jobs."""
    return b"".join(_LEAF.pack(leaf.job, leaf.units, leaf.root) for leaf in sorted(leaves, key=lambda leaf: leaf.job))


def unpack_leaves(packed: bytes) -> tuple[Leaf, ...]:
    """Reads packed leaves. Raises ``Rejected`` for a wrong length, or jobs that do not strictly ascend."""
    if not packed or len(packed) % LEAF_BYTES:
        raise Rejected(f"invalid leaves of {len(packed)} bytes: expected a multiple of {LEAF_BYTES}")
    leaves = tuple(Leaf(job, units, root) for job, units, root in _LEAF.iter_unpack(packed))
    if any(later.job <= earlier.job for earlier, later in pairwise(leaves)):
        raise Rejected("invalid leaves: expected ascending jobs, each once")
    return leaves


def bitmap_of(jobs: Iterable[int]) -> int:
    """Returns the bitmap with the bits of ``jobs`` set."""
    return functools.reduce(lambda bitmap, job: bitmap | 1 << job, jobs, 0)


def jobs_in(bitmap: int) -> tuple[int, ...]:
    """Returns the jobs whose bits are set, ascending."""
    return tuple(job for job in range(bitmap.bit_length()) if bitmap >> job & 1)
