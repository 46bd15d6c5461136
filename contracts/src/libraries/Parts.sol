// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Leaves} from "./Leaves.sol";

/// @title Parts
/// @notice Packed batches, one part for each node, big-endian. As submitted, each part is signed:
///
///     | uint32 node | uint8 count | count leaves | bytes32 beacon | uint16 length | uri of that length | 65 bytes signature |
///
/// As taken, without the parts left out. `settle` and `appeal` are given this form; the batch digest is its keccak256:
///
///     | uint32 node | uint8 count | count leaves |
library Parts {
    uint256 internal constant HEAD_BYTES = 5;
    /// Beacon, uri length and signature.
    uint256 private constant TAIL_BYTES = 32 + 2 + 65;
    /// Minimum length of a signed part.
    uint256 internal constant LEAST_SIGNED_BYTES = HEAD_BYTES + TAIL_BYTES;

    /// Allocates memory for this many parts as taken, with this many leaves in total.
    function room(uint256 parts, uint256 leaves) internal pure returns (bytes memory) {
        return new bytes(parts * HEAD_BYTES + leaves * Leaves.LEAF_BYTES);
    }

    /// Node, number of leaves and end of the signed part at `start`. The end may lie beyond the batch.
    function measure(bytes calldata signed, uint256 start)
        internal
        pure
        returns (uint32 node, uint256 count, uint256 end)
    {
        uint256 head;
        uint256 least = LEAST_SIGNED_BYTES;
        assembly ("memory-safe") {
            let at := add(signed.offset, start)
            head := calldataload(at)
            count := byte(4, head)
            let leaves := mul(count, 41)
            end := add(add(start, least), add(leaves, shr(240, calldataload(add(at, add(leaves, 37))))))
        }
        // The top four bytes.
        // forge-lint: disable-next-line(unsafe-typecast)
        node = uint32(head >> 224);
    }

    /// Beacon, uri and signature, which follow the leaves of a signed part.
    function tail(bytes calldata leaves)
        internal
        pure
        returns (bytes32 beacon, bytes calldata uri, bytes calldata signature)
    {
        // Slither takes a slice's offset and length, each written once, for one variable.
        // slither-disable-start write-after-write
        assembly ("memory-safe") {
            let at := add(leaves.offset, leaves.length)
            beacon := calldataload(at)
            uri.offset := add(at, 34)
            uri.length := shr(240, calldataload(add(at, 32)))
            signature.offset := add(uri.offset, uri.length)
            signature.length := 65
        }
        // slither-disable-end write-after-write
    }

    /// Appends the head and leaves of a part after the first `end` bytes; returns the new end. The caller ensures that
    /// there is room.
    function append(bytes memory packed, uint256 end, bytes calldata part, uint256 leafBytes)
        internal
        pure
        returns (uint256)
    {
        // Writes in place: bytes.concat would copy the whole batch for each part.
        assembly ("memory-safe") {
            calldatacopy(add(add(packed, 32), end), part.offset, add(leafBytes, HEAD_BYTES))
        }
        return end + HEAD_BYTES + leafBytes;
    }

    /// keccak256 of the first `end` bytes.
    function digest(bytes memory packed, uint256 end) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            hash := keccak256(add(packed, 32), end)
        }
    }

    /// Node and leaves of the part at `start`, and its end in a batch as taken. Lengths are not checked: the caller has
    /// measured the part, or compared the batch with its digest.
    function read(bytes calldata packed, uint256 start)
        internal
        pure
        returns (uint32 node, bytes calldata leaves, uint256 end)
    {
        // Slither takes a slice's offset and length, each written once, for one variable.
        // slither-disable-start write-after-write
        uint256 head;
        assembly ("memory-safe") {
            let at := add(packed.offset, start)
            head := calldataload(at)
            leaves.offset := add(at, HEAD_BYTES)
            leaves.length := mul(byte(4, head), 41)
            end := add(add(start, HEAD_BYTES), leaves.length)
        }
        // slither-disable-end write-after-write
        // The top four bytes.
        // forge-lint: disable-next-line(unsafe-typecast)
        node = uint32(head >> 224);
    }
}
