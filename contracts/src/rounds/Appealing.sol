// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {Appeal, ISettlement, State, Verdict} from "../interfaces/IRounds.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Parts} from "../libraries/Parts.sol";
import {Committee, Record, RoundStorage} from "./RoundsBase.sol";
import {Settling} from "./Settling.sol";

/// @title Appealing
/// @notice Retries one job before a larger committee and decides who pays. An appeal is a round under its own number.
/// Its reserve is the appellant's deposit, from which its jurors are paid.
/// @dev Below, `made` is the appeal, `second` the round that judges it, `stored` the round appealed against.
abstract contract Appealing is Settling {
    using SafeCast for uint256;

    /// Amounts reported by `AppealDecided`, in credits.
    struct Costs {
        uint256 fees;
        uint256 covered;
        uint256 awarded;
        uint256 forfeited;
    }

    /// @inheritdoc ISettlement
    function appeal(uint256 round, uint8 job, uint8 batch, bytes calldata parts) external returns (uint256 appealed) {
        Record storage stored = _requireState(round, State.Tallied);
        if (_storageOf(stored).appealSeats == 0) revert AppealsNotOffered(round);
        if (block.timestamp >= stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        _requireTimeToAppeal(stored);
        if (appealOf[round][job] != 0) revert AlreadyAppealed(round, job);
        _requireBatch(stored, batch, parts);
        uint128 deposit;
        (appealed, deposit) = _record(round, stored, job, parts);
        appealOf[round][job] = appealed;
        _count(_storageOf(stored), uint256(1) << job);
        _emitAppealOpened(appealed);
        market.deposit(stored.run, appealed, msg.sender, deposit);
    }

    function _record(uint256 round, Record storage stored, uint8 job, bytes calldata parts)
        private
        returns (uint256 appealed, uint128 deposit)
    {
        (uint32 node, uint64 units) = _find(round, job, parts);
        (uint256 accepted, uint256 fraud) = _verdict(stored);
        uint24 storageId;
        (appealed, storageId) = _nextRound();
        deposit = _deposit(_storageOf(stored));
        _appeals[appealed] =
            Appeal(round.toUint48(), job, _verdictIn(accepted, fraud, job), node, units, msg.sender, deposit);
        _openSecond(_rounds[appealed], stored, storageId, job, deposit);
    }

    /// Adds a pending appeal. A round's first appeal overwrites the value an earlier round left in the storage.
    function _count(RoundStorage storage live, uint256 job) private {
        uint16 appeals = live.appeals;
        if (appeals == 0) (live.appealed, live.appeals) = (job, 2);
        else (live.appealed, live.appeals) = (live.appealed | job, appeals + 1);
    }

    /// Refuses an appeal that MAX_ROUND could end undecided; otherwise a worker found fraudulent after a late tally
    /// could make its job void by waiting.
    function _requireTimeToAppeal(Record storage stored) private view {
        RoundStorage storage live = _storageOf(stored);
        uint256 voting = 2 * (uint256(live.drawSeconds) + live.commitSeconds + live.revealSeconds);
        uint256 latest = _endsBy(stored) - voting;
        if (block.timestamp > latest) revert TooLate(latest, block.timestamp);
    }

    /// Opens the appeal's round with the terms and eligible validators of the round appealed against, without its
    /// committee.
    function _openSecond(Record storage second, Record storage stored, uint24 storageId, uint8 job, uint128 deposit)
        private
    {
        (RoundStorage storage first, RoundStorage storage live) = (_storageOf(stored), _storages[storageId]);
        second.committee = first.appealSeats;
        second.policyVersion = stored.policyVersion;
        second.run = stored.run;
        second.storageId = storageId;
        second.bitmaps[0] = uint256(1) << job;
        live.openedAt = first.openedAt;
        live.drawSeconds = first.drawSeconds;
        live.commitSeconds = first.commitSeconds;
        live.revealSeconds = first.revealSeconds;
        live.challengeSeconds = 0;
        live.lastSlot = first.lastSlot;
        (live.appealSeats, live.appeals) = (0, 0);
        live.reserved = deposit;
        (live.maxUnits, live.openBlock, live.settledBatches) = (0, 0, 0);
        live.pricePerUnit = 0;
        live.jurorFee = first.jurorFee;
        live.assignmentsHash = 0;
        live.eligible = first.eligible & ~_seatedSlots(stored);
        // The draw window begins now; `_emitAppealOpened` reads its end from the record.
        // slither-disable-next-line unused-return
        _awaitDraw(second);
    }

    function _emitAppealOpened(uint256 appealed) private {
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

    /// The bond plus the maximum fees: a first attempt one vote short of a quorum, then a full committee.
    function _deposit(RoundStorage storage live) private view returns (uint128) {
        uint256 seats = live.appealSeats;
        return (APPEAL_BOND + (seats + (seats - 1) / 2) * live.jurorFee).toUint128();
    }

    function _seatedSlots(Record storage stored) private view returns (uint256 slots) {
        Committee storage committee = _storageOf(stored).committee;
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
                // Claimed units are 64 bits wide.
                // forge-lint: disable-next-line(unsafe-typecast)
                if (job == wanted) return (node, uint64(claimed));
            }
        }
        revert NotSubmitted(round, wanted);
    }

    /// @notice Carries out an appeal: pays its jurors, settles the job, pays out the deposit.
    /// @dev Reached only by delegatecall from `Rounds`, which has no function of this selector.
    /// @param appealed  number of the appeal
    /// @param decided   true if its committee reached a verdict; otherwise the job is void
    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function conclude(uint256 appealed, bool decided) external {
        Record storage second = _rounds[appealed];
        Appeal memory made = _appeals[appealed];
        if (!decided) return _conclude(appealed, second, made, Verdict.Void, false);
        _payJurors(appealed, second);
        (uint256 accepted, uint256 fraud) = _verdict(second);
        _conclude(appealed, second, made, _verdictIn(accepted, fraud, made.job), true);
    }

    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function _conclude(uint256 appealed, Record storage second, Appeal memory made, Verdict verdict, bool decided)
        private
    {
        Record storage stored = _rounds[made.round];
        // A struct in memory starts as zeros, as intended.
        // slither-disable-next-line uninitialized-local
        Costs memory costs;
        costs.fees = made.deposit - _storageOf(second).reserved;
        uint256 share = _settleAppealed(stored, made, verdict);
        if (decided && verdict == made.against) {
            costs.forfeited = APPEAL_BOND;
        } else {
            if (decided) costs.awarded = _awardAppellant(stored, made, costs.fees);
            costs.covered = Math.min(costs.fees - Math.min(costs.fees, costs.awarded), share);
        }
        _storageOf(stored).appeals -= 1;
        _returnDeposit(appealed, second, made, costs);
        emit AppealDecided(
            appealed, made.round, made.job, verdict, decided, costs.fees, costs.covered, costs.awarded, costs.forfeited
        );
        _end(appealed, second, decided ? State.Settled : State.Void);
        _releaseStorage(second);
    }

    function _returnDeposit(uint256 appealed, Record storage second, Appeal memory made, Costs memory costs) private {
        RoundStorage storage live = _storageOf(second);
        uint256 left = uint256(live.reserved) + costs.covered - costs.forfeited;
        _storageOf(_rounds[made.round]).reserved -= costs.covered.toUint128();
        live.reserved = 0;
        if (left != 0) market.payOut(second.run, appealed, made.appellant, left.toUint128());
        if (costs.forfeited != 0) market.payOut(second.run, appealed, admin.treasury(), costs.forfeited.toUint128());
    }

    /// Sets a job's final verdict, frees it, pays or slashes its node; returns the unspent part of the job's share of
    /// the reserve.
    function _settleAppealed(Record storage stored, Appeal memory made, Verdict verdict)
        private
        returns (uint256 share)
    {
        _overturn(stored, uint256(1) << made.job, verdict);
        uint256 bit = uint256(1) << made.job;
        if (_consumed(stored) & bit != 0 && verdict != Verdict.Accepted) emit JobsTainted(made.round, stored.run, bit);
        (uint256 maxUnits, uint256 price) = (_storageOf(stored).maxUnits, _storageOf(stored).pricePerUnit);
        uint256 units = verdict == Verdict.Accepted ? Math.min(made.units, maxUnits) : 0;
        uint256 paid = units * price;
        emit AppealedJobSettled(made.round, made.node, made.job, verdict, units, paid);
        address owner = registry.freeJobs(abi.encodePacked(made.node, uint8(0)))[0];
        _pay(made.round, stored, made.node, owner, paid);
        // The registry's event reports the amount taken.
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

    /// Slashes the overturned majority and awards the appellant the fees and a bounty from the amount taken.
    function _awardAppellant(Record storage stored, Appeal memory made, uint256 fees)
        private
        returns (uint256 awarded)
    {
        uint256 overturned = _majorityFor(made, stored);
        if (overturned == 0) return 0;
        Committee storage committee = _storageOf(stored).committee;
        uint256 taken = 0;
        for (uint256 seat; seat < stored.committee; ++seat) {
            if (!_has(overturned, seat)) continue;
            taken += registry.slash(committee.jurors[seat], made.round, Cause.Overturned, OVERTURN_PENALTY);
        }
        if (taken == 0) return 0;
        awarded = Math.min(fees, taken);
        // Less than half: a juror of a majority of one or two seats cannot profit from an appeal against its own
        // verdict.
        awarded += Math.min(APPEAL_BOUNTY, Math.min(taken - awarded, (taken - 1) / 2));
        registry.award(made.appellant, made.round, awarded);
    }

    /// Bitmap of the seats that voted for the verdict appealed against; zero if they are not a majority of all seats.
    function _majorityFor(Appeal memory made, Record storage stored) private view returns (uint256 seats) {
        Committee storage committee = _storageOf(stored).committee;
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
