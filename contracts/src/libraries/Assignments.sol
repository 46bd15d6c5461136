// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Assignments: which node owes which job
/// @notice Packed, 5 bytes for each listed node; jobs are numbered in that order.
///
///     | uint32 node | uint8 count - 1 |   big-endian
library Assignments {
    uint256 internal constant LISTING_BYTES = 5;

    /// One listing: its node, its jobs [first, end), and the index of the one after it.
    struct Place {
        uint32 node;
        uint256 first;
        uint256 end;
        uint256 next;
    }

    /// How many nodes are listed; a trailing fragment does not count.
    function listings(bytes calldata packed) internal pure returns (uint256) {
        return packed.length / LISTING_BYTES;
    }

    /// The listing at `index`, which the caller keeps below `listings`.
    function read(bytes calldata packed, uint256 index) internal pure returns (uint32 node, uint256 count) {
        uint256 listing;
        assembly ("memory-safe") {
            listing := calldataload(add(packed.offset, mul(index, LISTING_BYTES)))
        }
        // The top four bytes are the node, the next one the count.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint32(listing >> 224), uint256(uint8(listing >> 216)) + 1);
    }

    /// Moves to the listing that holds `job`; false where none does. Jobs asked for in ascending order cost one step a listing.
    function seek(Place memory at, bytes calldata packed, uint256 job) internal pure returns (bool) {
        if (job < at.first) (at.next, at.end) = (0, 0);
        uint256 length = listings(packed);
        while (job >= at.end) {
            if (at.next == length) return false;
            uint256 count;
            (at.node, count) = read(packed, at.next);
            at.first = at.end;
            unchecked {
                // A round has 256 jobs at most.
                at.end += count;
                ++at.next;
            }
        }
        return true;
    }
}
