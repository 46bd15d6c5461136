// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Loads
/// @notice Free capacity of each worker, and the time from which it may be listed. Four nodes share a word, because
/// nodes registered one after the other are mostly listed together. Node n is in quarter n % 4, counted from the lowest
/// bits:
///
///     | uint32 free capacity | uint32 listable from, a timestamp in seconds; 0 while not listable |
library Loads {
    uint256 private constant NODES = 4;
    uint256 private constant NODE_BITS = 64;
    uint256 private constant ROOM_SHIFT = 32;

    /// Index of the word that holds a node.
    function indexOf(uint32 node) internal pure returns (uint256) {
        return node / NODES;
    }

    /// Free capacity and listable-from time of a node in its word.
    function read(uint256 word, uint32 node) internal pure returns (uint256 room, uint256 servesFrom) {
        uint256 load = word >> _shift(node);
        // The two halves of the quarter.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint32(load >> ROOM_SHIFT), uint32(load));
    }

    /// `count` jobs shifted to a node's place, to be added to its word or subtracted from it.
    function jobs(uint32 node, uint256 count) internal pure returns (uint256) {
        return count << (_shift(node) + ROOM_SHIFT);
    }

    function roomOf(mapping(uint256 => uint256) storage loads, uint32 node) internal view returns (uint32) {
        // The upper half of the quarter.
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint32(loads[indexOf(node)] >> (_shift(node) + ROOM_SHIFT));
    }

    /// Sets the load of a newly registered node.
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
