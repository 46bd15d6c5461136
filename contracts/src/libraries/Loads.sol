// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Loads: how much more each worker can take, and from when it may be listed
/// @notice Four nodes in a word, node n in the quarter n % 4 from below: nodes registered one after the other are mostly listed
/// together, and share what reading and writing costs.
///
///     | uint32 capacity not in flight | uint32 may be listed from; 0 while it may not |
library Loads {
    uint256 private constant NODES = 4;
    uint256 private constant NODE_BITS = 64;
    uint256 private constant ROOM_SHIFT = 32;

    /// The word that holds a node.
    function indexOf(uint32 node) internal pure returns (uint256) {
        return node / NODES;
    }

    /// What a word says of a node that it holds.
    function read(uint256 word, uint32 node) internal pure returns (uint256 room, uint256 servesFrom) {
        uint256 load = word >> _shift(node);
        // The quarter's halves.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint32(load >> ROOM_SHIFT), uint32(load));
    }

    /// So many jobs, to be taken from a node's room or given back to it.
    function jobs(uint32 node, uint256 count) internal pure returns (uint256) {
        return count << (_shift(node) + ROOM_SHIFT);
    }

    function roomOf(mapping(uint256 => uint256) storage loads, uint32 node) internal view returns (uint32) {
        // The quarter's upper half.
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint32(loads[indexOf(node)] >> (_shift(node) + ROOM_SHIFT));
    }

    /// For a node that was just registered.
    function start(mapping(uint256 => uint256) storage loads, uint32 node, uint32 capacity, uint32 servesFrom)
        internal
    {
        loads[indexOf(node)] |= (uint256(capacity) << ROOM_SHIFT | servesFrom) << _shift(node);
    }

    function setServesFrom(mapping(uint256 => uint256) storage loads, uint32 node, uint32 servesFrom) internal {
        uint256 word = loads[indexOf(node)];
        loads[indexOf(node)] =
            (word & ~(uint256(type(uint32).max) << _shift(node))) | uint256(servesFrom) << _shift(node);
    }

    function _shift(uint32 node) private pure returns (uint256) {
        unchecked {
            return (node % NODES) * NODE_BITS;
        }
    }
}
