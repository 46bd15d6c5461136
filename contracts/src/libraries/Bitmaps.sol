// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Bitmaps
/// @notice Sets of up to 256 jobs or slots in a word.
library Bitmaps {
    /// Number of bits set.
    function count(uint256 bits) internal pure returns (uint256) {
        unchecked {
            // Adds neighbouring fields, doubling their width in each step, then sums all bytes by one multiplication.
            // The top byte would overflow for a full word, which is handled first.
            if (bits == type(uint256).max) return 256;
            bits -= (bits >> 1) & 0x5555555555555555555555555555555555555555555555555555555555555555;
            uint256 pairs = 0x3333333333333333333333333333333333333333333333333333333333333333;
            bits = (bits & pairs) + ((bits >> 2) & pairs);
            bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f;
            return (bits * 0x0101010101010101010101010101010101010101010101010101010101010101) >> 248;
        }
    }

    /// Bits set in at least `threshold` of `words`; at most 15 words. Uses bit-sliced addition: plane k holds bit k of
    /// every column's sum, so whole words are added and compared at once.
    function atLeast(uint256[] memory words, uint256 threshold) internal pure returns (uint256) {
        // An array in memory starts as zeros, as intended.
        // slither-disable-next-line uninitialized-local
        uint256[4] memory planes;
        for (uint256 i; i < words.length; ++i) {
            uint256 carry = words[i];
            for (uint256 k; k < 4 && carry != 0; ++k) {
                (planes[k], carry) = (planes[k] ^ carry, planes[k] & carry);
            }
        }
        uint256 above = 0;
        uint256 equal = type(uint256).max;
        for (uint256 k = 4; k > 0; --k) {
            uint256 plane = planes[k - 1];
            uint256 bit = (threshold >> (k - 1)) & 1 == 1 ? type(uint256).max : 0;
            above |= equal & plane & ~bit;
            equal &= ~(plane ^ bit);
        }
        return above | equal;
    }
}
