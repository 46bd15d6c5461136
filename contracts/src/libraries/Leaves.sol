// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Leaves: what a worker claims for its jobs
/// @notice Packed, 41 bytes for each job, ascending by job. The artifact root is not read here: it is signed, emitted and
/// digested with the rest.
///
///     | uint8 job | uint64 units | bytes32 artifactRoot |   big-endian
library Leaves {
    uint256 internal constant LEAF_BYTES = 41;

    /// How many leaves there are, or none where the length is not whole.
    function count(bytes calldata leaves) internal pure returns (uint256) {
        return leaves.length % LEAF_BYTES == 0 ? leaves.length / LEAF_BYTES : 0;
    }

    /// The leaf at `index`, which the caller keeps below `count`.
    function read(bytes calldata leaves, uint256 index) internal pure returns (uint8 job, uint64 units) {
        uint256 head;
        // Unchecked reads: a slice costs ten times as much, and this is done for every leaf twice.
        assembly ("memory-safe") {
            head := calldataload(add(leaves.offset, mul(index, LEAF_BYTES)))
        }
        // The top byte is the job, the next eight the units.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint8(head >> 248), uint64(head >> 184));
    }
}
