// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {IMarket} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Appeal, IRounds, ISettlement, Round, RoundsTerms, Seat, State} from "./interfaces/IRounds.sol";
import {Judging} from "./rounds/Judging.sol";
import {Committee, Record, RoundStorage, RoundsBase} from "./rounds/RoundsBase.sol";
import {Submitting} from "./rounds/Submitting.sol";
import {Settlement} from "./Settlement.sol";

/// @title Rounds
/// @notice Implements `IRounds`.
/// @dev The code up to the verdict is here; `Settlement` holds the rest and runs by delegatecall.
contract Rounds is Submitting, Judging {
    Settlement private immutable SETTLEMENT;

    /// @dev Deploy last: registry and market must already name this address. Creates `Settlement`.
    /// @param registry_  registry; its `rounds()` must be this contract
    /// @param market_    market; its `rounds()` must be this contract and its `registry()` must be `registry_`
    /// @param terms_     protocol-wide penalties, fixed for good
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_)
        RoundsBase(registry_, market_, terms_)
    {
        // The others were given this address before it existed.
        bool named = registry_.rounds() == address(this) && market_.rounds() == address(this);
        if (!named || address(market_.registry()) != address(registry_)) revert WrongDeployment();
        SETTLEMENT = new Settlement(registry_, market_, terms_);
    }

    /// @inheritdoc ISettlement
    function appeal(uint256, uint8, uint8, bytes calldata) external returns (uint256) {
        return abi.decode(_settlement(msg.data), (uint256));
    }

    /// @inheritdoc ISettlement
    function settle(uint256, uint8, bytes calldata, bytes calldata) external {
        _settlement(msg.data);
    }

    /// @inheritdoc ISettlement
    function finish(uint256, bytes calldata) external {
        _settlement(msg.data);
    }

    /// @inheritdoc ISettlement
    function free(uint256, bytes calldata) external {
        _settlement(msg.data);
    }

    /// @inheritdoc ISettlement
    function consume(uint256, uint256, uint256) external {
        _settlement(msg.data);
    }

    /// @inheritdoc IRounds
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

    /// @inheritdoc IRounds
    function appealAt(uint256 appealed) external view returns (Appeal memory) {
        return _appeals[appealed];
    }

    /// @inheritdoc IRounds
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

    /// @inheritdoc IRounds
    function terms() external view returns (RoundsTerms memory) {
        return RoundsTerms(FRAUD_SLASH, ABSENCE_PENALTY, OVERTURN_PENALTY, APPEAL_BOND, APPEAL_BOUNTY);
    }

    /// @inheritdoc Judging
    function _concludeAppeal(uint256 appealed, bool decided) internal override {
        _settlement(abi.encodeCall(SETTLEMENT.conclude, (appealed, decided)));
    }

    function _settlement(bytes memory call) private returns (bytes memory) {
        return Address.functionDelegateCall(address(SETTLEMENT), call);
    }
}
