// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {IRounds, Round, SettledLeaves, State} from "../interfaces/IRounds.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Committee, RoundsBase} from "./RoundsBase.sol";

/// @title Settling: what a verdict costs and earns
abstract contract Settling is RoundsBase {
    using SafeCast for uint256;

    /// What one submission came to.
    struct Outcome {
        uint256 jobs;
        uint256 accepted;
        uint256 fraud;
        uint256 units;
    }

    /// @inheritdoc IRounds
    function settle(uint256 round, uint8 batch, bytes calldata assignments, SettledLeaves[] calldata submissions)
        external
    {
        Round storage stored = _in(round, State.Tallied);
        if (block.timestamp < stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        _takeBatch(round, stored, batch, keccak256(abi.encode(submissions)));
        for (uint256 i; i < submissions.length; ++i) {
            _settleOne(round, stored, batch, submissions[i]);
        }
        if (stored.settledBatches != stored.batches) return;
        _payJurors(round, stored);
        _end(round, stored, State.Settled);
        _freeAllBut(stored.submitted, assignments);
    }

    /// @inheritdoc IRounds
    function free(uint256 round, bytes calldata assignments) external {
        Round storage stored = _in(round, State.Void);
        _requireAssignments(stored, assignments);
        stored.assignmentsHash = 0;
        emit JobsFreed(round, stored.jobs);
        _freeAllBut(0, assignments);
    }

    /// @inheritdoc IRounds
    function consume(uint256 run, uint256 round, uint256 jobs) external {
        if (msg.sender != address(market)) revert NotMarket(msg.sender);
        Round storage stored = _rounds[round];
        if (stored.state != State.Tallied && stored.state != State.Settled) revert WrongState(round, stored.state);
        if (stored.run != run) revert WrongRun(round, run);
        if (jobs & ~stored.accepted != 0) revert NotAccepted(round, jobs & ~stored.accepted);
        if (jobs & stored.consumed != 0) revert AlreadyConsumed(round, jobs & stored.consumed);
        stored.consumed |= jobs;
        emit JobsConsumed(round, run, jobs);
    }

    /// Checks a batch against its digest and spends it.
    function _takeBatch(uint256 round, Round storage stored, uint8 batch, bytes32 given) private {
        bytes32 digest = batchDigest[round][batch];
        if (digest == 0 && batch < stored.batches) revert AlreadySettled(batch);
        if (given != digest) revert WrongBatch(batch, given, digest);
        delete batchDigest[round][batch];
        stored.settledBatches += 1;
    }

    /// Nothing here can refuse: the reserve covers the pay, a slash takes at most the bond, and the jobs are in flight.
    function _settleOne(uint256 round, Round storage stored, uint8 batch, SettledLeaves calldata item) private {
        Outcome memory outcome = _outcome(stored, item.leaves);
        uint256 paid = outcome.units * stored.pricePerUnit;
        uint256 void_ = outcome.jobs & ~(outcome.accepted | outcome.fraud);
        emit SubmissionSettled(round, item.node, batch, outcome.accepted, outcome.fraud, void_, outcome.units, paid);
        address owner = registry.freeJobs(item.node, Bitmaps.count(outcome.jobs).toUint32());
        _pay(round, stored, item.node, owner, paid);
        if (outcome.fraud == 0) return;
        registry.slash(item.node, round, Cause.Fraud, Bitmaps.count(outcome.fraud) * FRAUD_SLASH);
    }

    function _outcome(Round storage stored, bytes calldata leaves) private view returns (Outcome memory outcome) {
        uint256 accepted = stored.accepted;
        uint256 maxUnits = stored.maxUnits;
        uint256 count = Leaves.count(leaves);
        for (uint256 i; i < count; ++i) {
            (uint8 job, uint64 units) = Leaves.read(leaves, i);
            outcome.jobs |= uint256(1) << job;
            if ((accepted >> job) & 1 == 1) outcome.units += Math.min(units, maxUnits);
        }
        outcome.accepted = outcome.jobs & accepted;
        outcome.fraud = outcome.jobs & stored.fraud;
    }

    /// A juror earns its fee in proportion to the jobs on which it agrees with the verdict.
    function _payJurors(uint256 round, Round storage stored) private {
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
