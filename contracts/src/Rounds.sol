// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {IRounds, Round, RoundsTerms, Seat, State} from "./interfaces/IRounds.sol";
import {Judging} from "./rounds/Judging.sol";
import {Committee, RoundsBase} from "./rounds/RoundsBase.sol";
import {Settling} from "./rounds/Settling.sol";
import {Submitting} from "./rounds/Submitting.sol";

/// @title Rounds
/// @notice As `IRounds` specifies.
contract Rounds is Submitting, Judging, Settling {
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_)
        RoundsBase(registry_, market_, terms_)
    {}

    /// @inheritdoc IRounds
    function appeal(uint256 round, uint8) external view {
        _in(round, State.Tallied);
        revert AppealsNotOffered(round);
    }

    /// @inheritdoc IRounds
    function roundOf(uint256 round) external view returns (Round memory) {
        return _rounds[round];
    }

    /// @inheritdoc IRounds
    function seatsOf(uint256 round) external view returns (Seat[] memory seats) {
        Round storage stored = _rounds[round];
        Committee storage committee = _committees[round][stored.attempt];
        bool drawn = committee.jurors[0] != 0;
        seats = new Seat[](drawn ? stored.committee : 0);
        for (uint256 i; i < seats.length; ++i) {
            seats[i].node = committee.jurors[i];
            seats[i].revealed = _has(stored.revealed, i);
            seats[i].abstained = _has(stored.abstained, i);
            if (seats[i].revealed) {
                seats[i].accept = committee.words[i];
                seats[i].fraud = committee.fraud[i];
            } else {
                seats[i].commitment = bytes32(committee.words[i]);
            }
        }
    }

    /// @inheritdoc IRounds
    function terms() external view returns (RoundsTerms memory) {
        return RoundsTerms(FRAUD_SLASH, ABSENCE_PENALTY);
    }
}
