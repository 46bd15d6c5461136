// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {ISettlement, Round, SettledLeaves, State} from "../interfaces/IRounds.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Committee, RoundsBase} from "./RoundsBase.sol";

/// @title Settling: what a verdict costs and earns
abstract contract Settling is ISettlement, RoundsBase {
    using SafeCast for uint256;

    /// What one submission came to.
    struct Outcome {
        uint256 jobs;
        uint256 accepted;
        uint256 fraud;
        uint256 units;
    }

    /// @inheritdoc ISettlement
    function settle(uint256 round, uint8 batch, bytes calldata assignments, SettledLeaves[] calldata submissions)
        external
    {
        Round storage stored = _in(round, State.Tallied);
        if (block.timestamp < stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        _requireBatch(round, stored, batch, submissions);
        delete batchDigest[round][batch];
        stored.settledBatches += 1;
        uint256 unappealed = ~stored.appealed;
        for (uint256 i; i < submissions.length; ++i) {
            _settleOne(round, stored, batch, submissions[i], unappealed);
        }
        if (_left(stored) == 0) _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function finish(uint256 round, bytes calldata assignments) external {
        Round storage stored = _in(round, State.Tallied);
        _requireAssignments(stored, assignments);
        if (_left(stored) != 0) revert NotFinished(round, stored.batches - stored.settledBatches, stored.appeals);
        _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function free(uint256 round, bytes calldata assignments) external {
        Round storage stored = _in(round, State.Void);
        _requireAssignments(stored, assignments);
        stored.assignmentsHash = 0;
        emit JobsFreed(round, stored.jobs);
        _freeAllBut(0, assignments);
    }

    /// @inheritdoc ISettlement
    function consume(uint256 run, uint256 round, uint256 jobs) external {
        if (msg.sender != address(market)) revert NotMarket(msg.sender);
        Round storage stored = _rounds[round];
        bool judged = stored.state == State.Tallied || stored.state == State.Settled;
        if (!judged || _isAppeal(stored)) revert WrongState(round, stored.state);
        if (stored.run != run) revert WrongRun(round, run);
        if (jobs & ~stored.accepted != 0) revert NotAccepted(round, jobs & ~stored.accepted);
        if (jobs & stored.consumed != 0) revert AlreadyConsumed(round, jobs & stored.consumed);
        stored.consumed |= jobs;
        emit JobsConsumed(round, run, jobs);
    }

    /// Batches and appeals that the round's end still waits for.
    function _left(Round storage stored) private view returns (uint256) {
        return uint256(stored.batches) - stored.settledBatches + stored.appeals;
    }

    function _finish(uint256 round, Round storage stored, bytes calldata assignments) private {
        _payJurors(round, stored);
        _end(round, stored, State.Settled);
        _freeAllBut(stored.submitted, assignments);
    }

    /// Checks a resupplied batch against its digest.
    function _requireBatch(uint256 round, Round storage stored, uint8 batch, SettledLeaves[] calldata submissions)
        internal
        view
    {
        bytes32 digest = batchDigest[round][batch];
        if (digest == 0 && batch < stored.batches) revert AlreadySettled(batch);
        bytes32 given = keccak256(abi.encode(submissions));
        if (given != digest) revert WrongBatch(batch, given, digest);
    }

    /// Nothing here can refuse: the reserve covers the pay, a slash takes at most the bond, and the jobs are in flight.
    function _settleOne(
        uint256 round,
        Round storage stored,
        uint8 batch,
        SettledLeaves calldata item,
        uint256 unappealed
    ) private {
        Outcome memory outcome = _outcome(stored, item.leaves, unappealed);
        if (outcome.jobs == 0) return;
        uint256 paid = outcome.units * stored.pricePerUnit;
        uint256 void_ = outcome.jobs & ~(outcome.accepted | outcome.fraud);
        emit SubmissionSettled(round, item.node, batch, outcome.accepted, outcome.fraud, void_, outcome.units, paid);
        address owner = registry.freeJobs(item.node, Bitmaps.count(outcome.jobs).toUint32());
        _pay(round, stored, item.node, owner, paid);
        if (outcome.fraud == 0) return;
        registry.slash(item.node, round, Cause.Fraud, Bitmaps.count(outcome.fraud) * FRAUD_SLASH);
    }

    function _outcome(Round storage stored, bytes calldata leaves, uint256 unappealed)
        private
        view
        returns (Outcome memory outcome)
    {
        uint256 accepted = stored.accepted;
        uint256 maxUnits = stored.maxUnits;
        uint256 count = Leaves.count(leaves);
        for (uint256 i; i < count; ++i) {
            (uint8 job, uint64 units) = Leaves.read(leaves, i);
            uint256 bit = (uint256(1) << job) & unappealed;
            outcome.jobs |= bit;
            if (accepted & bit != 0) outcome.units += Math.min(units, maxUnits);
        }
        outcome.accepted = outcome.jobs & accepted;
        outcome.fraud = outcome.jobs & stored.fraud;
    }

    /// A juror earns its fee in proportion to the jobs on which it agrees with the verdict.
    function _payJurors(uint256 round, Round storage stored) internal {
        Committee storage committee = _committees[round][stored.attempt];
        uint256 submitted = stored.submitted;
        uint256 voting = stored.revealed & ~stored.abstained;
        for (uint256 seat; seat < stored.committee; ++seat) {
            if ((voting >> seat) & 1 == 0) continue;
            uint256 apart = (committee.words[seat] ^ stored.accepted) | (committee.fraud[seat] ^ stored.fraud);
            uint256 bits = Bitmaps.count(submitted & ~apart);
            uint256 paid = uint256(stored.jurorFee) * bits / Bitmaps.count(submitted);
            uint32 juror = committee.jurors[seat];
            emit JurorSettled(round, juror, bits.toUint16(), paid);
            _pay(round, stored, juror, registry.ownerOf(juror), paid);
        }
    }
}
