// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Payments: what the owners of nodes are paid in a round
/// @notice Packed, 40 bytes for each. They pass through three contracts: an array of structs would cost more to copy than to pay.
///
///     | address owner | uint32 node | uint128 amount |   big-endian
library Payments {
    uint256 internal constant PAYMENT_BYTES = 40;

    /// Writes the payment at `index`, which the caller keeps within the memory there is; over the 24 bytes after it as well.
    function write(bytes memory packed, uint256 index, address owner, uint32 node, uint128 amount) internal pure {
        assembly ("memory-safe") {
            let at := add(add(packed, 32), mul(index, PAYMENT_BYTES))
            mstore(at, or(shl(96, owner), shl(64, node)))
            mstore(add(at, 24), shl(128, amount))
        }
    }

    /// Memory for `count` payments and what writing the last of them touches.
    function room(uint256 count) internal pure returns (bytes memory packed) {
        packed = new bytes(count * PAYMENT_BYTES + 16);
        cut(packed, count);
    }

    /// Shortens payments to the first `count`.
    function cut(bytes memory packed, uint256 count) internal pure {
        assembly ("memory-safe") {
            mstore(packed, mul(count, PAYMENT_BYTES))
        }
    }

    /// The payment at `index`, which the caller keeps within them.
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
