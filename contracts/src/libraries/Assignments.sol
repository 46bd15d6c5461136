// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Assignments
/// @notice Packed assignments: which node owes which jobs. One listing of 5 bytes for each node, big-endian; jobs are
/// numbered from 0 in the order of the listings.
///
///     | uint32 node | uint8 count - 1 |
library Assignments {
    uint256 internal constant LISTING_BYTES = 5;

    /// A position in packed assignments: a listing's node, its jobs [first, end), and the index of the next listing.
    struct Place {
        uint32 node;
        uint256 first;
        uint256 end;
        uint256 next;
    }

    /// Number of listings. A trailing fragment is ignored.
    function listings(bytes calldata packed) internal pure returns (uint256) {
        return packed.length / LISTING_BYTES;
    }

    /// Node of the first listing; undefined if there is none.
    function first(bytes calldata packed) internal pure returns (uint32 node) {
        assembly ("memory-safe") {
            node := shr(224, calldataload(packed.offset))
        }
    }

    /// Reads the listing at `index`. The caller ensures that `index` is below `listings`.
    function read(bytes calldata packed, uint256 index) internal pure returns (uint32 node, uint256 count) {
        uint256 listing;
        assembly ("memory-safe") {
            listing := calldataload(add(packed.offset, mul(index, LISTING_BYTES)))
        }
        // The top four bytes are the node, the next one the count.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint32(listing >> 224), uint256(uint8(listing >> 216)) + 1);
    }

    /// Allocates memory for `count` listings, and for the word that writing the last one touches.
    function room(uint256 count) internal pure returns (bytes memory packed) {
        packed = new bytes(count * LISTING_BYTES + 32);
        cut(packed, count);
    }

    /// Node of the listing at `index`. The caller ensures that it exists.
    function nodeIn(bytes memory packed, uint256 index) internal pure returns (uint32 node) {
        assembly ("memory-safe") {
            node := shr(224, mload(add(add(packed, 32), mul(index, LISTING_BYTES))))
        }
    }

    /// Writes a listing of `count` jobs (1 to 256) at `index`. The caller ensures that there is room.
    function write(bytes memory packed, uint256 index, uint32 node, uint256 count) internal pure {
        uint256 listing = uint256(node) << 8 | (count - 1);
        assembly ("memory-safe") {
            let at := add(add(packed, 32), mul(index, LISTING_BYTES))
            let kept := and(mload(at), not(shl(216, 0xffffffffff)))
            mstore(at, or(kept, shl(216, listing)))
        }
    }

    /// Shortens packed listings to the first `count`.
    function cut(bytes memory packed, uint256 count) internal pure {
        assembly ("memory-safe") {
            mstore(packed, mul(count, LISTING_BYTES))
        }
    }

    /// Moves to the listing that holds `job`. Returns the end of its jobs if it is `node`'s, otherwise 0.
    function endFor(Place memory at, bytes calldata packed, uint32 node, uint256 job) internal pure returns (uint256) {
        if ((job < at.first || job >= at.end) && !seek(at, packed, job)) return 0;
        return at.node == node ? at.end : 0;
    }

    /// Moves to the listing that holds `job`; false if none does. Over ascending jobs, each listing is read once.
    function seek(Place memory at, bytes calldata packed, uint256 job) internal pure returns (bool) {
        if (job < at.first) (at.next, at.end) = (0, 0);
        uint256 length = listings(packed);
        while (job >= at.end) {
            if (at.next == length) return false;
            uint256 count;
            (at.node, count) = read(packed, at.next);
            at.first = at.end;
            unchecked {
                // A round has at most 256 jobs.
                at.end += count;
                ++at.next;
            }
        }
        return true;
    }
}
