// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Leaves} from "./Leaves.sol";

/// @title Parts: a batch, packed, one part for each node
/// @notice As it is submitted, each part signed:
///
///     | uint32 node | uint8 count | count leaves | bytes32 beacon | uint16 length | uri of that length | 65 bytes signature |
///
/// and as it was taken, as `settle` and `appeal` are resupplied with it; its digest is the keccak256 of it:
///
///     | uint32 node | uint8 count | count leaves |
///
/// All integers are big-endian.
library Parts {
    uint256 internal constant HEAD_BYTES = 5;
    /// Beacon, length and signature.
    uint256 private constant TAIL_BYTES = 32 + 2 + 65;
    /// No signed part is shorter.
    uint256 internal constant LEAST_SIGNED_BYTES = HEAD_BYTES + TAIL_BYTES;

    /// Memory for so many parts as taken, and leaves in all.
    function room(uint256 parts, uint256 leaves) internal pure returns (bytes memory) {
        return new bytes(parts * HEAD_BYTES + leaves * Leaves.LEAF_BYTES);
    }

    /// The signed part at `start`: its node, how many leaves it has, and where the next part starts, maybe beyond the batch.
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

    /// What follows the leaves of a signed part.
    function tail(bytes calldata leaves)
        internal
        pure
        returns (bytes32 beacon, bytes calldata uri, bytes calldata signature)
    {
        // A slice of calldata has an offset and a length, each written once.
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

    /// Adds the beginning of a part, as it is taken, after the first `end` bytes, which the caller keeps within the room there is;
    /// returns its own end.
    function append(bytes memory packed, uint256 end, bytes calldata part, uint256 leafBytes)
        internal
        pure
        returns (uint256)
    {
        // Written where it belongs at once: joining bytes would copy all of them for each part.
        assembly ("memory-safe") {
            calldatacopy(add(add(packed, 32), end), part.offset, add(leafBytes, HEAD_BYTES))
        }
        return end + HEAD_BYTES + leafBytes;
    }

    /// Of the first `end` bytes.
    function digest(bytes memory packed, uint256 end) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            hash := keccak256(add(packed, 32), end)
        }
    }

    /// The beginning of the part at `start`, and where the next one starts in a batch as taken. Only for lengths that were seen to
    /// be right: what `measure` said to be within a batch, or what has the digest of one.
    function read(bytes calldata packed, uint256 start)
        internal
        pure
        returns (uint32 node, bytes calldata leaves, uint256 end)
    {
        // A slice of calldata has an offset and a length, each written once.
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
