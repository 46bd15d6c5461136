// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {ISettlement, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Parts} from "../libraries/Parts.sol";
import {Payments} from "../libraries/Payments.sol";
import {Committee, Record, RoundStorage, RoundsBase} from "./RoundsBase.sol";

/// @title Settling
/// @notice Pays and slashes by the verdict, and ends rounds.
abstract contract Settling is ISettlement, RoundsBase {
    using SafeCast for uint256;

    /// Values of the round read once for a batch, and the results collected while settling it.
    /// @param unappealed  bitmap of the jobs never appealed
    /// @param nodes       number of nodes with jobs to settle
    /// @param freed       packed assignments: for each of these nodes, the number of its jobs to free
    /// @param earned      credits earned by each of them
    /// @param total       sum of `earned`
    struct BatchSettlement {
        uint8 batch;
        uint256 unappealed;
        uint256 accepted;
        uint256 fraud;
        uint256 maxUnits;
        uint256 pricePerUnit;
        uint256 nodes;
        bytes freed;
        uint256[] earned;
        uint256 total;
    }

    /// @inheritdoc ISettlement
    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function settle(uint256 round, uint8 batch, bytes calldata assignments, bytes calldata parts) external {
        Record storage stored = _requireState(round, State.Tallied);
        if (block.timestamp < stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        _requireBatch(stored, batch, parts);
        RoundStorage storage live = _storageOf(stored);
        live.digests[batch] = SETTLED;
        live.settledBatches += 1;
        BatchSettlement memory settlement = _startBatch(stored, batch, parts.length);
        for (uint256 start; start < parts.length;) {
            (uint32 node, bytes calldata leaves, uint256 end) = Parts.read(parts, start);
            _settleOne(round, settlement, node, leaves);
            start = end;
        }
        if (settlement.nodes != 0) _payOwners(round, stored, settlement);
        if (_outstanding(stored) == 0) _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function finish(uint256 round, bytes calldata assignments) external {
        Record storage stored = _requireState(round, State.Tallied);
        _requireAssignments(stored, assignments);
        RoundStorage storage live = _storageOf(stored);
        if (_outstanding(stored) != 0) {
            revert NotFinished(round, stored.batches - live.settledBatches, _appealsPending(live));
        }
        _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function free(uint256 round, bytes calldata assignments) external {
        Record storage stored = _requireState(round, State.Void);
        _requireAssignments(stored, assignments);
        _releaseStorage(stored);
        emit JobsFreed(round, stored.jobs);
        _freeAllBut(0, assignments);
    }

    /// @inheritdoc ISettlement
    function consume(uint256 run, uint256 round, uint256 jobs) external {
        if (msg.sender != address(market)) revert NotMarket(msg.sender);
        Record storage stored = _rounds[round];
        bool judged = stored.state == State.Tallied || stored.state == State.Settled;
        if (!judged || _isAppeal(stored)) revert WrongState(round, stored.state);
        if (stored.run != run) revert WrongRun(round, run);
        (uint256 accepted, uint256 fraud) = _verdict(stored);
        uint256 refused = jobs & ~(accepted & ~fraud);
        if (refused != 0) revert NotAccepted(round, refused);
        uint256 consumed = _consumed(stored);
        if (jobs & consumed != 0) revert AlreadyConsumed(round, jobs & consumed);
        _consume(stored, jobs);
        emit JobsConsumed(round, run, jobs);
    }

    /// Number of batches not settled plus appeals not decided.
    function _outstanding(Record storage stored) private view returns (uint256) {
        RoundStorage storage live = _storageOf(stored);
        return uint256(stored.batches) - live.settledBatches + _appealsPending(live);
    }

    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function _finish(uint256 round, Record storage stored, bytes calldata assignments) private {
        _payJurors(round, stored);
        _end(round, stored, State.Settled);
        _releaseStorage(stored);
        (uint256 submitted, uint256 all) = (_submitted(stored), type(uint256).max >> (256 - stored.jobs));
        if (submitted != all) _freeAllBut(submitted, assignments);
    }

    /// Checks a resupplied batch against its digest.
    function _requireBatch(Record storage stored, uint8 batch, bytes calldata parts) internal view {
        bytes32 digest = _digestOf(stored, batch);
        if (digest == 0 && batch < stored.batches) revert AlreadySettled(batch);
        bytes32 given = keccak256(parts);
        if (given != digest) revert WrongBatch(batch, given, digest);
    }

    function _startBatch(Record storage stored, uint8 batch, uint256 length)
        private
        view
        returns (BatchSettlement memory settlement)
    {
        RoundStorage storage live = _storageOf(stored);
        settlement.batch = batch;
        settlement.unappealed = live.appeals == 0 ? type(uint256).max : ~live.appealed;
        (settlement.accepted, settlement.fraud) = _verdict(stored);
        settlement.maxUnits = live.maxUnits;
        settlement.pricePerUnit = live.pricePerUnit;
        // A part has at least a head and one leaf.
        uint256 most = length / (Parts.HEAD_BYTES + Leaves.LEAF_BYTES);
        settlement.freed = Assignments.room(most);
        settlement.earned = new uint256[](most);
    }

    /// Never reverts: the reserve covers the pay, a slash takes at most the bond, and the jobs are in flight.
    function _settleOne(uint256 round, BatchSettlement memory settlement, uint32 node, bytes calldata leaves) private {
        (uint256 jobs, uint256 units, uint256 count) = _outcome(settlement, leaves);
        if (count == 0) return;
        uint256 fraud = jobs & settlement.fraud & ~settlement.accepted;
        uint256 paid = units * settlement.pricePerUnit;
        uint256 place = settlement.nodes++;
        Assignments.write(settlement.freed, place, node, count);
        settlement.earned[place] = paid;
        settlement.total += paid;
        _emitSubmissionSettled(round, settlement, node, jobs, units, paid);
        // The registry's event reports the amount taken.
        // slither-disable-next-line unused-return
        if (fraud != 0) registry.slash(node, round, Cause.Fraud, Bitmaps.count(fraud) * FRAUD_SLASH);
    }

    function _emitSubmissionSettled(
        uint256 round,
        BatchSettlement memory settlement,
        uint32 node,
        uint256 jobs,
        uint256 units,
        uint256 paid
    ) private {
        (uint256 accepted, uint256 fraud) = (jobs & settlement.accepted, jobs & settlement.fraud);
        emit SubmissionSettled(round, node, settlement.batch, accepted, fraud, jobs & ~(accepted | fraud), units, paid);
    }

    /// Frees the settled jobs and pays the owners of their nodes.
    function _payOwners(uint256 round, Record storage stored, BatchSettlement memory settlement) private {
        uint256 nodes = settlement.nodes;
        bytes memory freed = settlement.freed;
        Assignments.cut(freed, nodes);
        address[] memory owners = registry.freeJobs(freed);
        bytes memory payments = Payments.room(nodes);
        for (uint256 i; i < nodes; ++i) {
            Payments.write(payments, i, owners[i], Assignments.nodeIn(freed, i), settlement.earned[i].toUint128());
        }
        _payAll(round, stored, payments, settlement.total);
    }

    /// Bitmap and number of the leaves' jobs that were never appealed, and the units accepted among them, capped per
    /// job.
    function _outcome(BatchSettlement memory settlement, bytes calldata leaves)
        private
        pure
        returns (uint256 jobs, uint256 units, uint256 count)
    {
        uint256 accepted = settlement.accepted & ~settlement.fraud;
        uint256 unappealed = settlement.unappealed;
        uint256 maxUnits = settlement.maxUnits;
        unchecked {
            // The sum of at most 64 numbers of 64 bits cannot overflow.
            for (uint256 start; start < leaves.length; start += Leaves.LEAF_BYTES) {
                (uint256 job, uint256 claimed) = Leaves.read(leaves, start);
                uint256 bit = uint256(1) << job;
                if (unappealed & bit == 0) continue;
                jobs |= bit;
                ++count;
                if (accepted & bit != 0) units += claimed < maxUnits ? claimed : maxUnits;
            }
        }
    }

    function _appealsPending(RoundStorage storage live) internal view returns (uint256 appeals) {
        appeals = live.appeals;
        if (appeals != 0) --appeals;
    }

    /// Pays every juror that revealed a vote, abstentions excepted.
    function _payJurors(uint256 round, Record storage stored) internal {
        Committee storage committee = _storageOf(stored).committee;
        uint256 voting = _voting(stored);
        bytes memory payments = Payments.room(Bitmaps.count(voting));
        (uint256 paid, uint256 total) = (0, 0);
        for (uint256 seat; voting >> seat != 0; ++seat) {
            if (!_has(voting, seat)) continue;
            uint32 juror = committee.jurors[seat];
            uint256 fee = _settleJuror(round, stored, committee, seat, juror);
            Payments.write(payments, paid++, registry.ownerOf(juror), juror, fee.toUint128());
            total += fee;
        }
        _payAll(round, stored, payments, total);
    }

    /// A juror earns jurorFee * agreeing jobs / submitted jobs, rounded down. A job agrees if both its accept and its
    /// fraud bit equal those of the final verdict. An unavailable vote earns nothing: it needs no work.
    function _settleJuror(uint256 round, Record storage stored, Committee storage committee, uint256 seat, uint32 juror)
        private
        returns (uint256 paid)
    {
        uint256 submitted = _submitted(stored);
        (uint256 accepted, uint256 fraudulent) = _verdict(stored);
        (uint256 accept, uint256 fraud) = _voteOf(committee, seat, submitted);
        uint256 differing = (accept ^ accepted) | (fraud ^ fraudulent);
        uint256 bits = Bitmaps.count(submitted & ~(differing | (accept & fraud)));
        paid = uint256(_storageOf(stored).jurorFee) * bits / Bitmaps.count(submitted);
        emit JurorSettled(round, juror, bits.toUint16(), paid);
    }
}
