// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {Appeal, ISettlement, State, Verdict} from "../interfaces/IRounds.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Parts} from "../libraries/Parts.sol";
import {Committee, Docket, Record} from "./RoundsBase.sol";
import {Settling} from "./Settling.sol";

/// @title Appealing: one job tried again, and who pays for it
/// @notice The trial is a round under its own number. Its reserve is the appellant's deposit, from which its jurors are paid.
abstract contract Appealing is Settling {
    using SafeCast for uint256;

    /// What an appeal came to, in credits.
    struct Costs {
        uint256 fees;
        uint256 covered;
        uint256 awarded;
        uint256 forfeited;
    }

    /// @inheritdoc ISettlement
    function appeal(uint256 round, uint8 job, uint8 batch, bytes calldata parts) external returns (uint256 appealed) {
        Record storage stored = _in(round, State.Tallied);
        if (_docketOf(stored).appealSeats == 0) revert AppealsNotOffered(round);
        if (block.timestamp >= stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        _requireTimeToTry(stored);
        if (appealOf[round][job] != 0) revert AlreadyAppealed(round, job);
        _requireBatch(stored, batch, parts);
        uint128 deposit;
        (appealed, deposit) = _record(round, stored, job, parts);
        appealOf[round][job] = appealed;
        _count(_docketOf(stored), uint256(1) << job);
        _announceAppeal(appealed);
        market.deposit(stored.run, appealed, msg.sender, deposit);
    }

    function _record(uint256 round, Record storage stored, uint8 job, bytes calldata parts)
        private
        returns (uint256 appealed, uint128 deposit)
    {
        (uint32 node, uint64 units) = _find(round, job, parts);
        (uint256 accepted, uint256 fraud) = _verdict(stored);
        uint24 docket;
        (appealed, docket) = _number();
        deposit = _deposit(_docketOf(stored));
        _appeals[appealed] =
            Appeal(round.toUint48(), job, _verdictIn(accepted, fraud, job), node, units, msg.sender, deposit);
        _openTrial(_rounds[appealed], stored, docket, job, deposit);
    }

    /// One appeal more is pending. What an earlier round left in the docket is overwritten by the first.
    function _count(Docket storage docket, uint256 job) private {
        uint16 appeals = docket.appeals;
        if (appeals == 0) (docket.appealed, docket.appeals) = (job, 2);
        else (docket.appealed, docket.appeals) = (docket.appealed | job, appeals + 1);
    }

    /// Where the tally came so late that MAX_ROUND would end the trial, the verdict stands: otherwise the condemned could have
    /// their jobs void by doing nothing.
    function _requireTimeToTry(Record storage stored) private view {
        Docket storage docket = _docketOf(stored);
        uint256 voting = 2 * (uint256(docket.drawSeconds) + docket.commitSeconds + docket.revealSeconds);
        uint256 latest = _endsBy(stored) - voting;
        if (block.timestamp > latest) revert TooLate(latest, block.timestamp);
    }

    /// The trial takes the run's terms as they stood when the round opened, and its validators less the first committee.
    function _openTrial(Record storage trial, Record storage stored, uint24 number, uint8 job, uint128 deposit)
        private
    {
        (Docket storage first, Docket storage docket) = (_docketOf(stored), _dockets[number]);
        trial.committee = first.appealSeats;
        trial.policyVersion = stored.policyVersion;
        trial.run = stored.run;
        trial.docket = number;
        trial.bitmaps[0] = uint256(1) << job;
        docket.openedAt = first.openedAt;
        docket.drawSeconds = first.drawSeconds;
        docket.commitSeconds = first.commitSeconds;
        docket.revealSeconds = first.revealSeconds;
        docket.challengeSeconds = 0;
        docket.lastSlot = first.lastSlot;
        (docket.appealSeats, docket.appeals) = (0, 0);
        docket.reserved = deposit;
        (docket.maxUnits, docket.openBlock, docket.settledBatches) = (0, 0, 0);
        docket.pricePerUnit = 0;
        docket.jurorFee = first.jurorFee;
        docket.assignmentsHash = 0;
        docket.eligible = first.eligible & ~_seatedSlots(stored);
        // Its window to be drawn in begins now.
        // slither-disable-next-line unused-return
        _awaitDraw(trial);
    }

    function _announceAppeal(uint256 appealed) private {
        Appeal memory made = _appeals[appealed];
        emit AppealOpened(
            appealed,
            made.round,
            made.appellant,
            made.job,
            made.against,
            made.node,
            made.units,
            made.deposit,
            _rounds[appealed].deadline
        );
    }

    /// The bond and the most that the jurors can earn: a first attempt short of a quorum, then a full committee.
    function _deposit(Docket storage docket) private view returns (uint128) {
        uint256 seats = docket.appealSeats;
        return (APPEAL_BOND + (seats + (seats - 1) / 2) * docket.jurorFee).toUint128();
    }

    function _seatedSlots(Record storage stored) private view returns (uint256 slots) {
        Committee storage committee = _docketOf(stored).committee;
        for (uint256 seat; seat < stored.committee; ++seat) {
            slots |= uint256(1) << registry.nodeOf(committee.jurors[seat]).slot;
        }
    }

    function _find(uint256 round, uint8 wanted, bytes calldata parts) private pure returns (uint32 node, uint64 units) {
        for (uint256 start; start < parts.length;) {
            bytes calldata leaves;
            (node, leaves, start) = Parts.read(parts, start);
            for (uint256 at; at < leaves.length; at += Leaves.LEAF_BYTES) {
                (uint256 job, uint256 claimed) = Leaves.read(leaves, at);
                // A claim is of 64 bits.
                // forge-lint: disable-next-line(unsafe-typecast)
                if (job == wanted) return (node, uint64(claimed));
            }
        }
        revert NotSubmitted(round, wanted);
    }

    /// By `Rounds` alone, for an appeal whose trial is over: pays, slashes and settles the job.
    /// @param decided  its committee came to a verdict; otherwise the job is void
    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function conclude(uint256 appealed, bool decided) external {
        Record storage trial = _rounds[appealed];
        Appeal memory made = _appeals[appealed];
        if (!decided) return _conclude(appealed, trial, made, Verdict.Void, false);
        _payJurors(appealed, trial);
        (uint256 accepted, uint256 fraud) = _verdict(trial);
        _conclude(appealed, trial, made, _verdictIn(accepted, fraud, made.job), true);
    }

    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function _conclude(uint256 appealed, Record storage trial, Appeal memory made, Verdict verdict, bool decided)
        private
    {
        Record storage stored = _rounds[made.round];
        // A struct in memory starts as zeros, which is what is meant.
        // slither-disable-next-line uninitialized-local
        Costs memory costs;
        costs.fees = made.deposit - _docketOf(trial).reserved;
        uint256 share = _settleAppealed(stored, made, verdict);
        if (decided && verdict == made.against) {
            costs.forfeited = APPEAL_BOND;
        } else {
            if (decided) costs.awarded = _awardAppellant(stored, made, costs.fees);
            costs.covered = Math.min(costs.fees - Math.min(costs.fees, costs.awarded), share);
        }
        _docketOf(stored).appeals -= 1;
        _returnDeposit(appealed, trial, made, costs);
        emit AppealDecided(
            appealed, made.round, made.job, verdict, decided, costs.fees, costs.covered, costs.awarded, costs.forfeited
        );
        _end(appealed, trial, decided ? State.Settled : State.Void);
        _discharge(trial);
    }

    function _returnDeposit(uint256 appealed, Record storage trial, Appeal memory made, Costs memory costs) private {
        Docket storage docket = _docketOf(trial);
        uint256 left = uint256(docket.reserved) + costs.covered - costs.forfeited;
        _docketOf(_rounds[made.round]).reserved -= costs.covered.toUint128();
        docket.reserved = 0;
        if (left != 0) market.payOut(trial.run, appealed, made.appellant, left.toUint128());
        if (costs.forfeited != 0) market.payOut(trial.run, appealed, admin.treasury(), costs.forfeited.toUint128());
    }

    /// Gives a job its last verdict; returns what that leaves of its share of the reserve.
    function _settleAppealed(Record storage stored, Appeal memory made, Verdict verdict)
        private
        returns (uint256 share)
    {
        _overturn(stored, uint256(1) << made.job, verdict);
        uint256 bit = uint256(1) << made.job;
        if (_consumed(stored) & bit != 0 && verdict != Verdict.Accepted) emit JobsTainted(made.round, stored.run, bit);
        (uint256 maxUnits, uint256 price) = (_docketOf(stored).maxUnits, _docketOf(stored).pricePerUnit);
        uint256 units = verdict == Verdict.Accepted ? Math.min(made.units, maxUnits) : 0;
        uint256 paid = units * price;
        emit AppealedJobSettled(made.round, made.node, made.job, verdict, units, paid);
        address owner = registry.freeJobs(abi.encodePacked(made.node, uint8(0)))[0];
        _pay(made.round, stored, made.node, owner, paid);
        // What was taken, at most the bond, is told by the registry's own event.
        // slither-disable-next-line unused-return
        if (verdict == Verdict.Fraud) registry.slash(made.node, made.round, Cause.Fraud, FRAUD_SLASH);
        return maxUnits * price - paid;
    }

    function _overturn(Record storage stored, uint256 bit, Verdict verdict) private {
        (uint256 accepted, uint256 fraud) = _verdict(stored);
        accepted = verdict == Verdict.Accepted ? accepted | bit : accepted & ~bit;
        fraud = verdict == Verdict.Fraud ? fraud | bit : fraud & ~bit;
        _setVerdict(stored, accepted, fraud);
    }

    /// The majority that was overturned pays; the appellant is given the fees and a bounty out of that.
    function _awardAppellant(Record storage stored, Appeal memory made, uint256 fees)
        private
        returns (uint256 awarded)
    {
        uint256 losers = _sidingWith(made, stored);
        if (losers == 0) return 0;
        Committee storage committee = _docketOf(stored).committee;
        uint256 taken = 0;
        for (uint256 seat; seat < stored.committee; ++seat) {
            if (!_has(losers, seat)) continue;
            taken += registry.slash(committee.jurors[seat], made.round, Cause.Overturned, OVERTURN_PENALTY);
        }
        if (taken == 0) return 0;
        awarded = Math.min(fees, taken);
        // Less than half, so that no juror can profit from overturning its own committee.
        awarded += Math.min(APPEAL_BOUNTY, Math.min(taken - awarded, (taken - 1) / 2));
        registry.award(made.appellant, made.round, awarded);
    }

    /// Bitmap of the seats that voted for the verdict appealed against; none where they were no majority.
    function _sidingWith(Appeal memory made, Record storage stored) private view returns (uint256 seats) {
        Committee storage committee = _docketOf(stored).committee;
        uint256 submitted = _submitted(stored);
        uint256 voting = stored.revealed & ~stored.abstained;
        uint256 count = 0;
        for (uint256 seat; seat < stored.committee; ++seat) {
            if (!_has(voting, seat)) continue;
            (uint256 accept, uint256 fraud) = _voteOf(committee, seat, submitted);
            if (_verdictIn(accept, fraud, made.job) != made.against) continue;
            seats |= uint256(1) << seat;
            ++count;
        }
        return 2 * count > stored.committee ? seats : 0;
    }

    function _verdictIn(uint256 accepted, uint256 fraud, uint8 job) private pure returns (Verdict) {
        if ((accepted >> job) & 1 == 1) return Verdict.Accepted;
        return (fraud >> job) & 1 == 1 ? Verdict.Fraud : Verdict.Void;
    }
}
