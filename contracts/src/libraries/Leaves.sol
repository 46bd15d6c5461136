// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Leaves: what a worker claims for its jobs
/// @notice Packed, 41 bytes for each job, ascending by job. The artifact root is not read here: it is signed, emitted and
/// digested with the rest.
///
///     | uint8 job | uint64 units | bytes32 artifactRoot |   big-endian
library Leaves {
    uint256 internal constant LEAF_BYTES = 41;

    /// The job of the leaf that starts at `start`, which the caller keeps within the leaves.
    function jobAt(bytes calldata leaves, uint256 start) internal pure returns (uint256 job) {
        assembly ("memory-safe") {
            job := byte(0, calldataload(add(leaves.offset, start)))
        }
    }

    /// The leaf that starts at `start`, which the caller keeps within the leaves.
    function read(bytes calldata leaves, uint256 start) internal pure returns (uint256 job, uint256 units) {
        // Unchecked reads: a slice costs ten times as much, and this is done for every leaf.
        assembly ("memory-safe") {
            let head := calldataload(add(leaves.offset, start))
            job := byte(0, head)
            units := and(shr(184, head), 0xffffffffffffffff)
        }
    }
}
