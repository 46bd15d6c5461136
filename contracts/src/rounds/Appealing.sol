// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {Appeal, ISettlement, State, Verdict} from "../interfaces/IRounds.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Committees} from "../libraries/Committees.sol";
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
        uint256 voting = Committees.longest(live.drawSeconds, live.commitSeconds, live.revealSeconds);
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
        live.eligible = first.eligible & ~_slotsOf(first.committee, _all(stored));
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

    /// The bond plus the maximum fees.
    function _deposit(RoundStorage storage live) private view returns (uint128) {
        return (APPEAL_BOND + Committees.mostFees(live.appealSeats, live.jurorFee)).toUint128();
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

    /// @notice Carries out an appeal: pays its jurors, settles the job, fines contradicted jurors, pays out the deposit.
    /// @dev Reached only by delegatecall from `Rounds`, which refuses this selector from others.
    /// @param appealed  number of the appeal
    /// @param judged    true if a committee of the appeal had a quorum
    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function conclude(uint256 appealed, bool judged) external {
        Record storage second = _rounds[appealed];
        Appeal memory made = _appeals[appealed];
        Record storage stored = _rounds[made.round];
        if (judged) _payJurors(appealed, second);
        (bool decided, Verdict named) = judged ? _named(second, made.job) : (false, Verdict.Void);
        Verdict verdict = _settleAppealed(stored, made, decided, named);
        uint256 fees = made.deposit - _storageOf(second).reserved;
        bool confirmed = decided && named == made.against && named != Verdict.Unavailable;
        uint256 forfeited = confirmed ? APPEAL_BOND : 0;
        uint256 awarded = 0;
        if (decided && named != Verdict.Unavailable) awarded = _award(stored, made, named, fees);
        _storageOf(stored).appeals -= 1;
        _returnDeposit(appealed, second, made, forfeited);
        emit AppealDecided(appealed, made.round, made.job, verdict, decided, fees, awarded, forfeited);
        _end(appealed, second, judged ? State.Settled : State.Void);
        _releaseStorage(second);
    }

    /// The verdict that a majority of the appeal's seats name, if any. Seats that name none of the others name void. If
    /// only fraud and unavailable together have a majority, that is unavailable.
    function _named(Record storage second, uint8 job) private view returns (bool decided, Verdict named) {
        (uint256 accepted, uint256 fraud) = _verdict(second);
        named = _verdictIn(accepted, fraud, job);
        if (named != Verdict.Void) return (true, named);
        uint256 quorum = Committees.quorum(second.committee);
        if (Bitmaps.count(_seatsFor(second, job, Verdict.Void)) >= quorum) return (true, named);
        // Bytes shown to a part of the seats must not split a condemnation.
        uint256 refusing = _seatsFor(second, job, Verdict.Fraud) | _seatsFor(second, job, Verdict.Unavailable);
        return Bitmaps.count(refusing) >= quorum ? (true, Verdict.Unavailable) : (false, named);
    }

    function _returnDeposit(uint256 appealed, Record storage second, Appeal memory made, uint256 forfeited) private {
        RoundStorage storage live = _storageOf(second);
        uint256 left = live.reserved - forfeited;
        live.reserved = 0;
        if (left != 0) market.payOut(second.run, appealed, made.appellant, left.toUint128());
        if (forfeited != 0) market.payOut(second.run, appealed, admin.treasury(), forfeited.toUint128());
    }

    /// The job's final verdict. Without a decision a condemnation does not stand, and everything else does. An appeal
    /// whose committee could not read the bytes changes only an acceptance that no checkpoint relies on.
    function _final(Verdict against, bool decided, Verdict named, bool consumed) private pure returns (Verdict) {
        if (!decided) return against == Verdict.Fraud ? Verdict.Void : against;
        if (named != Verdict.Unavailable) return named;
        return against == Verdict.Accepted && !consumed ? Verdict.Unavailable : against;
    }

    /// Sets a job's final verdict, frees it, pays or slashes its node.
    function _settleAppealed(Record storage stored, Appeal memory made, bool decided, Verdict named)
        private
        returns (Verdict verdict)
    {
        uint256 bit = uint256(1) << made.job;
        bool consumed = _consumed(stored) & bit != 0;
        verdict = _final(made.against, decided, named, consumed);
        _overturn(stored, bit, verdict);
        if (consumed && verdict != Verdict.Accepted) emit JobsTainted(made.round, stored.run, bit);
        uint256 units = verdict == Verdict.Accepted ? Math.min(made.units, _storageOf(stored).maxUnits) : 0;
        uint256 paid = units * _storageOf(stored).pricePerUnit;
        emit AppealedJobSettled(made.round, made.node, made.job, verdict, units, paid);
        address owner = registry.freeJobs(abi.encodePacked(made.node, uint8(0)))[0];
        _pay(made.round, stored, made.node, owner, paid);
        // The registry's event reports the amount taken.
        // slither-disable-next-line unused-return
        if (verdict == Verdict.Fraud) registry.slash(made.node, made.round, Cause.Fraud, FRAUD_SLASH);
    }

    function _overturn(Record storage stored, uint256 bit, Verdict verdict) private {
        (uint256 accepted, uint256 fraud) = _verdict(stored);
        bool both = verdict == Verdict.Unavailable;
        accepted = both || verdict == Verdict.Accepted ? accepted | bit : accepted & ~bit;
        fraud = both || verdict == Verdict.Fraud ? fraud | bit : fraud & ~bit;
        _setVerdict(stored, accepted, fraud);
    }

    /// Slashes the jurors whose vote the appeal contradicts, and counts a strike against those that could not read what
    /// the appeal's committee read. The appellant is awarded the fees from the amount taken and, if the verdict is
    /// overturned, a bounty.
    function _award(Record storage stored, Appeal memory made, Verdict named, uint256 fees)
        private
        returns (uint256 awarded)
    {
        Committee storage committee = _storageOf(stored).committee;
        uint256 unread = _seatsFor(stored, made.job, Verdict.Unavailable);
        uint256 opposed = _opposing(stored, made.job, named);
        uint256 taken = 0;
        for (uint256 seat; (unread | opposed) >> seat != 0; ++seat) {
            uint32 juror = committee.jurors[seat];
            if (_has(unread, seat)) market.strike(stored.run, made.round, juror);
            if (_has(opposed, seat)) taken += registry.slash(juror, made.round, Cause.Overturned, OVERTURN_PENALTY);
        }
        if (taken == 0) return 0;
        awarded = Math.min(fees, taken);
        // Less than half: a juror that pays for one or two seats cannot profit from an appeal against its own vote.
        if (named != made.against) {
            awarded += Math.min(APPEAL_BOUNTY, Math.min(taken - awarded, (taken - 1) / 2));
        }
        registry.award(made.appellant, made.round, awarded);
    }

    /// Bitmap of the seats whose vote the named verdict contradicts: accepted and fraud contradict each other. Void
    /// contradicts neither, as honest jurors may differ on work made to lie at the bound between them.
    function _opposing(Record storage stored, uint8 job, Verdict named) private view returns (uint256) {
        if (named == Verdict.Void) return 0;
        return _seatsFor(stored, job, named == Verdict.Accepted ? Verdict.Fraud : Verdict.Accepted);
    }

    /// Bitmap of the seats that voted for one verdict on a job.
    function _seatsFor(Record storage stored, uint8 job, Verdict verdict) private view returns (uint256 seats) {
        Committee storage committee = _storageOf(stored).committee;
        (uint256 submitted, uint256 voting) = (_submitted(stored), _voting(stored));
        for (uint256 seat; voting >> seat != 0; ++seat) {
            if (!_has(voting, seat)) continue;
            (uint256 accept, uint256 fraud) = _voteOf(committee, seat, submitted);
            if (_verdictIn(accept, fraud, job) == verdict) seats |= uint256(1) << seat;
        }
    }

    function _verdictIn(uint256 accepted, uint256 fraud, uint8 job) private pure returns (Verdict) {
        bool fraudulent = (fraud >> job) & 1 == 1;
        if ((accepted >> job) & 1 == 0) return fraudulent ? Verdict.Fraud : Verdict.Void;
        return fraudulent ? Verdict.Unavailable : Verdict.Accepted;
    }
}
