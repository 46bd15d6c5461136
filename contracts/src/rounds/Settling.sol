// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Payment} from "../interfaces/ICredits.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {ISettlement, Round, SettledLeaves, State} from "../interfaces/IRounds.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Committee, RoundsBase} from "./RoundsBase.sol";

/// @title Settling: what a verdict costs and earns
abstract contract Settling is ISettlement, RoundsBase {
    using SafeCast for uint256;

    /// What settling a batch reads of its round, read once.
    struct Facts {
        uint8 batch;
        uint256 unappealed;
        uint256 accepted;
        uint256 fraud;
        uint256 maxUnits;
        uint256 pricePerUnit;
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
        Facts memory facts = Facts({
            batch: batch,
            unappealed: ~stored.appealed,
            accepted: stored.accepted,
            fraud: stored.fraud,
            maxUnits: stored.maxUnits,
            pricePerUnit: stored.pricePerUnit
        });
        Payment[] memory payments = new Payment[](submissions.length);
        for (uint256 i; i < submissions.length; ++i) {
            _settleOne(round, facts, submissions[i], payments[i]);
        }
        _payAll(round, stored, payments);
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
        uint256 all = type(uint256).max >> (256 - stored.jobs);
        if (stored.submitted != all) _freeAllBut(stored.submitted, assignments);
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
    /// @param payment  filled with what the node is paid
    function _settleOne(uint256 round, Facts memory facts, SettledLeaves calldata item, Payment memory payment)
        private
    {
        uint32 node = item.node;
        (uint256 jobs, uint256 units) = _outcome(facts, item.leaves);
        if (jobs == 0) return;
        uint256 accepted = jobs & facts.accepted;
        uint256 fraud = jobs & facts.fraud;
        uint256 paid = units * facts.pricePerUnit;
        emit SubmissionSettled(round, node, facts.batch, accepted, fraud, jobs & ~(accepted | fraud), units, paid);
        payment.node = node;
        payment.amount = paid.toUint128();
        payment.owner = registry.freeJobs(node, Bitmaps.count(jobs).toUint32());
        // What was taken, at most the bond, is told by the registry's own event.
        // slither-disable-next-line unused-return
        if (fraud != 0) registry.slash(node, round, Cause.Fraud, Bitmaps.count(fraud) * FRAUD_SLASH);
    }

    /// The jobs of these leaves that were not appealed, and the units accepted among them.
    function _outcome(Facts memory facts, bytes calldata leaves) private pure returns (uint256 jobs, uint256 units) {
        (uint256 accepted, uint256 maxUnits) = (facts.accepted & facts.unappealed, facts.maxUnits);
        uint256 count = Leaves.count(leaves);
        for (uint256 i; i < count; ++i) {
            (uint8 job, uint64 claimed) = Leaves.read(leaves, i);
            jobs |= uint256(1) << job;
            unchecked {
                // At most 64 numbers of 64 bits.
                if ((accepted >> job) & 1 == 1) units += claimed < maxUnits ? claimed : maxUnits;
            }
        }
        jobs &= facts.unappealed;
    }

    /// A juror earns its fee in proportion to the jobs on which it agrees with the verdict.
    function _payJurors(uint256 round, Round storage stored) internal {
        Committee storage committee = _committees[round][stored.attempt];
        Payment[] memory payments = new Payment[](stored.committee);
        uint256 voting = stored.revealed & ~stored.abstained;
        for (uint256 seat; seat < payments.length; ++seat) {
            if (!_has(voting, seat)) continue;
            uint32 juror = committee.jurors[seat];
            uint256 paid = _settleJuror(round, stored, committee, seat, juror);
            payments[seat] = Payment(juror, registry.ownerOf(juror), paid.toUint128());
        }
        _payAll(round, stored, payments);
    }

    function _settleJuror(uint256 round, Round storage stored, Committee storage committee, uint256 seat, uint32 juror)
        private
        returns (uint256 paid)
    {
        uint256 submitted = stored.submitted;
        (uint256 accept, uint256 fraud) = _voteOf(committee, seat, submitted);
        uint256 bits = Bitmaps.count(submitted & ~((accept ^ stored.accepted) | (fraud ^ stored.fraud)));
        paid = uint256(stored.jurorFee) * bits / Bitmaps.count(submitted);
        emit JurorSettled(round, juror, bits.toUint16(), paid);
    }
}
