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
import {Committee, Docket, Record, RoundsBase} from "./RoundsBase.sol";

/// @title Settling: what a verdict costs and earns
abstract contract Settling is ISettlement, RoundsBase {
    using SafeCast for uint256;

    /// Settling a batch: what is read of its round, once, and what comes out.
    /// @param nodes   how many nodes had anything to settle
    /// @param freed   a listing for each of them: its jobs that are no longer in flight
    /// @param earned  what each of them earned
    /// @param total   all of that
    struct Reckoning {
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
    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function settle(uint256 round, uint8 batch, bytes calldata assignments, bytes calldata parts) external {
        Record storage stored = _in(round, State.Tallied);
        if (block.timestamp < stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        _requireBatch(stored, batch, parts);
        Docket storage docket = _docketOf(stored);
        docket.digests[batch] = SETTLED;
        docket.settledBatches += 1;
        Reckoning memory reckoning = _reckon(stored, batch, parts.length);
        for (uint256 start; start < parts.length;) {
            (uint32 node, bytes calldata leaves, uint256 end) = Parts.read(parts, start);
            _settleOne(round, reckoning, node, leaves);
            start = end;
        }
        if (reckoning.nodes != 0) _payOwners(round, stored, reckoning);
        if (_left(stored) == 0) _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function finish(uint256 round, bytes calldata assignments) external {
        Record storage stored = _in(round, State.Tallied);
        _requireAssignments(stored, assignments);
        Docket storage docket = _docketOf(stored);
        if (_left(stored) != 0) {
            revert NotFinished(round, stored.batches - docket.settledBatches, _appealsPending(docket));
        }
        _finish(round, stored, assignments);
    }

    /// @inheritdoc ISettlement
    function free(uint256 round, bytes calldata assignments) external {
        Record storage stored = _in(round, State.Void);
        _requireAssignments(stored, assignments);
        _discharge(stored);
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
        // What is not accepted is refused, fraud or not.
        // slither-disable-next-line unused-return
        (uint256 accepted,) = _verdict(stored);
        if (jobs & ~accepted != 0) revert NotAccepted(round, jobs & ~accepted);
        uint256 consumed = _consumed(stored);
        if (jobs & consumed != 0) revert AlreadyConsumed(round, jobs & consumed);
        _consume(stored, jobs);
        emit JobsConsumed(round, run, jobs);
    }

    /// Batches and appeals that the round's end still waits for.
    function _left(Record storage stored) private view returns (uint256) {
        Docket storage docket = _docketOf(stored);
        return uint256(stored.batches) - docket.settledBatches + _appealsPending(docket);
    }

    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function _finish(uint256 round, Record storage stored, bytes calldata assignments) private {
        _payJurors(round, stored);
        _end(round, stored, State.Settled);
        _discharge(stored);
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

    function _reckon(Record storage stored, uint8 batch, uint256 length)
        private
        view
        returns (Reckoning memory reckoning)
    {
        Docket storage docket = _docketOf(stored);
        reckoning.batch = batch;
        reckoning.unappealed = docket.appeals == 0 ? type(uint256).max : ~docket.appealed;
        (reckoning.accepted, reckoning.fraud) = _verdict(stored);
        reckoning.maxUnits = docket.maxUnits;
        reckoning.pricePerUnit = docket.pricePerUnit;
        // No part is shorter than its head and a leaf.
        uint256 most = length / (Parts.HEAD_BYTES + Leaves.LEAF_BYTES);
        reckoning.freed = Assignments.room(most);
        reckoning.earned = new uint256[](most);
    }

    /// Nothing here can refuse: the reserve covers the pay, a slash takes at most the bond, and the jobs are in flight.
    function _settleOne(uint256 round, Reckoning memory reckoning, uint32 node, bytes calldata leaves) private {
        (uint256 jobs, uint256 units, uint256 count) = _outcome(reckoning, leaves);
        if (count == 0) return;
        uint256 fraud = jobs & reckoning.fraud;
        uint256 paid = units * reckoning.pricePerUnit;
        uint256 place = reckoning.nodes++;
        Assignments.write(reckoning.freed, place, node, count);
        reckoning.earned[place] = paid;
        reckoning.total += paid;
        _announceOutcome(round, reckoning, node, jobs, units, paid);
        // What was taken, at most the bond, is told by the registry's own event.
        // slither-disable-next-line unused-return
        if (fraud != 0) registry.slash(node, round, Cause.Fraud, Bitmaps.count(fraud) * FRAUD_SLASH);
    }

    function _announceOutcome(
        uint256 round,
        Reckoning memory reckoning,
        uint32 node,
        uint256 jobs,
        uint256 units,
        uint256 paid
    ) private {
        (uint256 accepted, uint256 fraud) = (jobs & reckoning.accepted, jobs & reckoning.fraud);
        emit SubmissionSettled(round, node, reckoning.batch, accepted, fraud, jobs & ~(accepted | fraud), units, paid);
    }

    /// Takes what was settled out of flight, and pays whoever owns the nodes.
    function _payOwners(uint256 round, Record storage stored, Reckoning memory reckoning) private {
        uint256 nodes = reckoning.nodes;
        bytes memory freed = reckoning.freed;
        Assignments.cut(freed, nodes);
        address[] memory owners = registry.freeJobs(freed);
        bytes memory payments = Payments.room(nodes);
        for (uint256 i; i < nodes; ++i) {
            Payments.write(payments, i, owners[i], Assignments.nodeIn(freed, i), reckoning.earned[i].toUint128());
        }
        _payAll(round, stored, payments, reckoning.total);
    }

    /// The jobs of these leaves that were not appealed, how many they are, and the units accepted among them.
    function _outcome(Reckoning memory reckoning, bytes calldata leaves)
        private
        pure
        returns (uint256 jobs, uint256 units, uint256 count)
    {
        uint256 accepted = reckoning.accepted;
        uint256 unappealed = reckoning.unappealed;
        uint256 maxUnits = reckoning.maxUnits;
        unchecked {
            // At most 64 numbers of 64 bits.
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

    function _appealsPending(Docket storage docket) internal view returns (uint256 appeals) {
        appeals = docket.appeals;
        if (appeals != 0) --appeals;
    }

    /// A juror earns its fee in proportion to the jobs on which it agrees with the verdict.
    function _payJurors(uint256 round, Record storage stored) internal {
        Committee storage committee = _docketOf(stored).committee;
        uint256 voting = stored.revealed & ~stored.abstained;
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

    function _settleJuror(uint256 round, Record storage stored, Committee storage committee, uint256 seat, uint32 juror)
        private
        returns (uint256 paid)
    {
        uint256 submitted = _submitted(stored);
        (uint256 accepted, uint256 condemned) = _verdict(stored);
        (uint256 accept, uint256 fraud) = _voteOf(committee, seat, submitted);
        uint256 bits = Bitmaps.count(submitted & ~((accept ^ accepted) | (fraud ^ condemned)));
        paid = uint256(_docketOf(stored).jurorFee) * bits / Bitmaps.count(submitted);
        emit JurorSettled(round, juror, bits.toUint16(), paid);
    }
}
