// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Appeal, ISettlement, Round, RoundsTerms, Seat, State} from "../interfaces/IRounds.sol";
import {Committee, Record, RoundStorage, RoundsBase} from "./RoundsBase.sol";

/// @title Viewing
/// @notice Rounds, appeals and seats as anyone may read them.
abstract contract Viewing is ISettlement, RoundsBase {
    /// @inheritdoc ISettlement
    function roundOf(uint256 round) external view returns (Round memory shown) {
        Record storage stored = _rounds[round];
        shown.state = stored.state;
        shown.attempt = stored.attempt;
        shown.committee = stored.committee;
        shown.revealing = stored.revealing;
        shown.jobs = stored.jobs;
        shown.batches = stored.batches;
        shown.committed = stored.committed;
        shown.revealed = stored.revealed;
        shown.abstained = stored.abstained;
        shown.policyVersion = stored.policyVersion;
        shown.deadline = stored.deadline;
        shown.run = stored.run;
        shown.submitted = _submitted(stored);
        (shown.accepted, shown.fraud) = _verdict(stored);
        shown.consumed = _consumed(stored);
        if (stored.storageId != 0) _show(_storageOf(stored), shown);
        else if (stored.state == State.Settled) shown.settledBatches = stored.batches;
    }

    function _show(RoundStorage storage live, Round memory shown) private view {
        shown.slotCount = uint16(live.lastSlot) + 1;
        shown.settledBatches = live.settledBatches;
        shown.openedAt = live.openedAt;
        shown.maxUnits = live.maxUnits;
        shown.openBlock = live.openBlock;
        shown.closeBlock = live.closeBlock;
        shown.appealSeats = live.appealSeats;
        shown.pricePerUnit = live.pricePerUnit;
        shown.jurorFee = live.jurorFee;
        shown.reserved = live.reserved;
        shown.drawSeconds = live.drawSeconds;
        shown.commitSeconds = live.commitSeconds;
        shown.revealSeconds = live.revealSeconds;
        shown.challengeSeconds = live.challengeSeconds;
        shown.assignmentsHash = live.assignmentsHash;
        shown.eligible = live.eligible;
        if (live.appeals != 0) (shown.appealed, shown.appeals) = (live.appealed, live.appeals - 1);
    }

    /// @inheritdoc ISettlement
    function appealAt(uint256 appealed) external view returns (Appeal memory) {
        return _appeals[appealed];
    }

    /// @inheritdoc ISettlement
    function seatsOf(uint256 round) external view returns (Seat[] memory seats) {
        Record storage stored = _rounds[round];
        uint256 submitted = _submitted(stored);
        Committee storage committee = _storageOf(stored).committee;
        bool drawn = stored.state == State.Voting || stored.state == State.Tallied;
        seats = new Seat[](drawn ? stored.committee : 0);
        for (uint256 i; i < seats.length; ++i) {
            seats[i].node = committee.jurors[i];
            seats[i].revealed = _has(stored.revealed, i);
            seats[i].abstained = _has(stored.abstained, i);
            if (seats[i].revealed) {
                (seats[i].accept, seats[i].fraud) = _voteOf(committee, i, submitted);
            } else if (_has(stored.committed, i)) {
                seats[i].commitment = bytes32(committee.words[i]);
            }
        }
    }

    /// @inheritdoc ISettlement
    function terms() external view returns (RoundsTerms memory) {
        return RoundsTerms(FRAUD_SLASH, ABSENCE_PENALTY, OVERTURN_PENALTY, APPEAL_BOND, APPEAL_BOUNTY);
    }
}
