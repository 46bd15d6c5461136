// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Leaves
/// @notice Packed leaves: a worker's claims for its jobs. 41 bytes for each job, big-endian, ascending by job. The
/// contracts never read the artifact root; it is signed, emitted and hashed with the rest.
///
///     | uint8 job | uint64 units | bytes32 artifactRoot |
library Leaves {
    uint256 internal constant LEAF_BYTES = 41;

    /// Job of the leaf at byte `start`. The caller ensures that the leaf is within `leaves`.
    function jobAt(bytes calldata leaves, uint256 start) internal pure returns (uint256 job) {
        assembly ("memory-safe") {
            job := byte(0, calldataload(add(leaves.offset, start)))
        }
    }

    /// Job and claimed units of the leaf at byte `start`. The caller ensures that the leaf is within `leaves`.
    function read(bytes calldata leaves, uint256 start) internal pure returns (uint256 job, uint256 units) {
        // Reads without bounds checks: a slice costs ten times as much, for every leaf.
        assembly ("memory-safe") {
            let head := calldataload(add(leaves.offset, start))
            job := byte(0, head)
            units := and(shr(184, head), 0xffffffffffffffff)
        }
    }
}
