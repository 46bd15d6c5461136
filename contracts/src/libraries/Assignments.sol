// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Assignments: which node owes which job
/// @notice Packed, 5 bytes for each listed node; jobs are numbered in that order.
///
///     | uint32 node | uint8 count - 1 |   big-endian
library Assignments {
    uint256 internal constant LISTING_BYTES = 5;

    /// How many nodes are listed; a trailing fragment does not count.
    function listings(bytes calldata packed) internal pure returns (uint256) {
        return packed.length / LISTING_BYTES;
    }

    /// The listing at `index`, which the caller keeps below `listings`.
    function read(bytes calldata packed, uint256 index) internal pure returns (uint32 node, uint256 count) {
        uint256 start = index * LISTING_BYTES;
        uint40 listing = uint40(bytes5(packed[start:start + LISTING_BYTES]));
        // The low byte is the count, the upper four the node.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint32(listing >> 8), uint256(uint8(listing)) + 1);
    }

    /// Node of each job, unpacked once so that each leaf is looked up in one step.
    function unpack(bytes calldata packed, uint256 jobs) internal pure returns (uint32[] memory nodes) {
        nodes = new uint32[](jobs);
        uint256 job;
        uint256 length = listings(packed);
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = read(packed, i);
            for (uint256 end = job + count; job < end; ++job) {
                nodes[job] = node;
            }
        }
    }
}
