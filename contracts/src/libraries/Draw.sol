// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @title Draw: a committee from a block hash
library Draw {
    /// Where chains that keep block hashes in their state have the contract that serves them (EIP-2935).
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// Blocks whose hashes it serves.
    uint256 internal constant HISTORY_WINDOW = 8191;
    /// Blocks whose hashes the opcode serves.
    uint256 internal constant OPCODE_WINDOW = 256;
    /// Random tries for each slot before the draw probes linearly.
    uint256 internal constant TRIES = 4;

    /// The newest block at a whole number of windows after `closeBlock` and its hash; a zero hash where there is none yet.
    function seedOf(uint256 closeBlock) internal view returns (uint256 seedBlock, bytes32 seed) {
        if (block.number <= closeBlock) return (closeBlock, 0);
        if (HISTORY.code.length != 0) (seedBlock, seed) = _newest(closeBlock, HISTORY_WINDOW);
        // No such contract, or one younger than the block asked for.
        // Zero is how both ways of asking say that there is no hash.
        // slither-disable-next-line incorrect-equality
        if (seed == 0) (seedBlock, seed) = _newest(closeBlock, OPCODE_WINDOW);
    }

    /// Slots of a committee. `eligible` has at least `seats` bits, all below `slotCount`; the caller sees to it.
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
            // Below slotCount, at most 256.
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
