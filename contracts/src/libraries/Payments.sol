// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Payments
/// @notice Packed payments to owners of nodes, 40 bytes each, big-endian. They pass through three contracts, and
/// copying an array of structs would cost more than the payments.
///
///     | address owner | uint32 node | uint128 amount |
library Payments {
    uint256 internal constant PAYMENT_BYTES = 40;

    /// Writes the payment at `index` and overwrites the 16 bytes after it. The caller ensures that there is room.
    function write(bytes memory packed, uint256 index, address owner, uint32 node, uint128 amount) internal pure {
        assembly ("memory-safe") {
            let at := add(add(packed, 32), mul(index, PAYMENT_BYTES))
            mstore(at, or(shl(96, owner), shl(64, node)))
            mstore(add(at, 24), shl(128, amount))
        }
    }

    /// Allocates memory for `count` payments, and for the bytes that writing the last one touches.
    function room(uint256 count) internal pure returns (bytes memory packed) {
        packed = new bytes(count * PAYMENT_BYTES + 16);
        cut(packed, count);
    }

    /// Shortens packed payments to the first `count`.
    function cut(bytes memory packed, uint256 count) internal pure {
        assembly ("memory-safe") {
            mstore(packed, mul(count, PAYMENT_BYTES))
        }
    }

    /// Reads the payment at `index`. The caller ensures that it exists.
    function read(bytes calldata packed, uint256 index)
        internal
        pure
        returns (address owner, uint32 node, uint128 amount)
    {
        uint256 head;
        uint256 tail;
        assembly ("memory-safe") {
            let at := add(packed.offset, mul(index, PAYMENT_BYTES))
            head := calldataload(at)
            tail := calldataload(add(at, 24))
        }
        // The top twenty bytes are the owner, the next four the node.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (address(uint160(head >> 96)), uint32(head >> 64), uint128(tail >> 128));
    }
}
