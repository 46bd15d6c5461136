// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Bitmaps: 256 jobs or slots in a word
library Bitmaps {
    /// How many bits are set.
    function count(uint256 bits) internal pure returns (uint256) {
        unchecked {
            // Sums of neighbouring fields, each step twice as wide; the bytes are then summed by one multiplication. Its top byte
            // would overflow for a full word, which therefore has an answer of its own.
            if (bits == type(uint256).max) return 256;
            bits -= (bits >> 1) & 0x5555555555555555555555555555555555555555555555555555555555555555;
            uint256 pairs = 0x3333333333333333333333333333333333333333333333333333333333333333;
            bits = (bits & pairs) + ((bits >> 2) & pairs);
            bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f;
            return (bits * 0x0101010101010101010101010101010101010101010101010101010101010101) >> 248;
        }
    }

    /// The bits that at least `threshold` of `words` set; at most 15 words. Bit-sliced addition: plane k holds bit k of every
    /// column's sum, so that whole words are added and compared at a time.
    function atLeast(uint256[] memory words, uint256 threshold) internal pure returns (uint256) {
        // An array in memory starts as zeros, which is what is meant.
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
