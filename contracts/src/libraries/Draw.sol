// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @title Draw
/// @notice Draws a committee from a block hash.
library Draw {
    /// The history contract of EIP-2935, on chains that keep block hashes in state.
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// Number of blocks the history contract serves.
    uint256 internal constant HISTORY_WINDOW = 8191;
    /// Number of blocks the BLOCKHASH opcode serves.
    uint256 internal constant OPCODE_WINDOW = 256;
    /// Random tries per slot before the draw probes slots in order.
    uint256 internal constant TRIES = 4;

    /// Returns the newest block before this one that is `closeBlock` plus a multiple of the window, and its hash. The
    /// hash is zero while there is none.
    function seedOf(uint256 closeBlock) internal view returns (uint256 seedBlock, bytes32 seed) {
        if (block.number <= closeBlock) return (closeBlock, 0);
        if (HISTORY.code.length != 0) (seedBlock, seed) = _newest(closeBlock, HISTORY_WINDOW);
        // There is no history contract, or it does not hold the block yet.
        // Both sources return zero for a missing hash.
        // slither-disable-next-line incorrect-equality
        if (seed == 0) (seedBlock, seed) = _newest(closeBlock, OPCODE_WINDOW);
    }

    /// Draws the slots of a committee. The caller ensures that `eligible` has at least `seats` bits, all below
    /// `slotCount`.
    function slots(bytes32 seed, uint8 attempt, uint256 slotCount, uint256 eligible, uint256 seats)
        internal
        pure
        returns (uint8[] memory drawn)
    {
        drawn = new uint8[](seats);
        uint256 found = 0;
        for (uint256 i; found < seats; ++i) {
            uint256 slot = i < TRIES * slotCount ? _try(seed, attempt, i) % slotCount : i % slotCount;
            if ((eligible >> slot) & 1 == 0) continue;
            eligible ^= uint256(1) << slot;
            // Below slotCount, which is at most 256.
            // forge-lint: disable-next-line(unsafe-typecast)
            drawn[found++] = uint8(slot);
        }
    }

    function _newest(uint256 closeBlock, uint256 window) private view returns (uint256 seedBlock, bytes32 seed) {
        seedBlock = block.number - 1 - (block.number - 1 - closeBlock) % window;
        seed = Blockhash.blockHash(seedBlock);
    }

    function _try(bytes32 seed, uint8 attempt, uint256 i) private pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, attempt, i)));
    }
}
