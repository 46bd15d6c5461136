// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Committees
/// @notice Bounds that follow from the number of seats of a committee.
library Committees {
    /// Maximum seats.
    uint256 internal constant MAX_SEATS = 15;
    /// Maximum committees drawn for one verdict: the first, and a redraw after each that missed its quorum.
    uint256 internal constant DRAWS = 4;

    /// Votes that a verdict needs: more than half of all seats, as committees are odd.
    function quorum(uint256 seats) internal pure returns (uint256) {
        return (seats + 1) / 2;
    }

    /// Maximum fees of one verdict: every committee but the last one vote short of its quorum, the last one full.
    function mostFees(uint256 seats, uint256 fee) internal pure returns (uint256) {
        return fee * (seats + (DRAWS - 1) * (quorum(seats) - 1));
    }

    /// Maximum seconds from the close to a verdict.
    function longest(uint256 drawSeconds, uint256 commitSeconds, uint256 revealSeconds)
        internal
        pure
        returns (uint256)
    {
        return DRAWS * (drawSeconds + commitSeconds + revealSeconds);
    }
}
