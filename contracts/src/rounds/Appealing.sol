// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {Appeal, ISettlement, Round, SettledLeaves, State, Verdict} from "../interfaces/IRounds.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Committee} from "./RoundsBase.sol";
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
    function appeal(uint256 round, uint8 job, uint8 batch, SettledLeaves[] calldata submissions)
        external
        returns (uint256 appealed)
    {
        Round storage stored = _in(round, State.Tallied);
        if (stored.appealSeats == 0) revert AppealsNotOffered(round);
        if (block.timestamp >= stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        _requireTimeToTry(stored);
        if (appealOf[round][job] != 0) revert AlreadyAppealed(round, job);
        _requireBatch(round, stored, batch, submissions);
        (uint32 node, uint64 units) = _find(round, job, submissions);
        appealed = ++roundCount;
        appealOf[round][job] = appealed;
        stored.appealed |= uint256(1) << job;
        stored.appeals += 1;
        uint128 deposit = _deposit(stored);
        _appeals[appealed] = Appeal(
            round.toUint48(), job, _verdictIn(stored.accepted, stored.fraud, job), node, units, msg.sender, deposit
        );
        _openTrial(appealed, round, stored, job, deposit);
        _announceAppeal(appealed);
        market.deposit(stored.run, appealed, msg.sender, deposit);
    }

    /// Where the tally came so late that MAX_ROUND would end the trial, the verdict stands: otherwise the condemned could have
    /// their jobs void by doing nothing.
    function _requireTimeToTry(Round storage stored) private view {
        uint256 voting = 2 * (uint256(stored.drawSeconds) + stored.commitSeconds + stored.revealSeconds);
        uint256 latest = _endsBy(stored) - voting;
        if (block.timestamp > latest) revert TooLate(latest, block.timestamp);
    }

    /// The trial takes the run's terms as they stood when the round opened, and its validators less the first committee.
    function _openTrial(uint256 appealed, uint256 round, Round storage stored, uint8 job, uint128 deposit) private {
        Round storage trial = _rounds[appealed];
        trial.state = State.Closed;
        trial.committee = stored.appealSeats;
        trial.slotCount = stored.slotCount;
        trial.policyVersion = stored.policyVersion;
        trial.openedAt = stored.openedAt;
        trial.deadline = _after(stored.drawSeconds);
        trial.run = stored.run;
        trial.closeBlock = block.number.toUint40();
        trial.jurorFee = stored.jurorFee;
        trial.reserved = deposit;
        trial.drawSeconds = stored.drawSeconds;
        trial.commitSeconds = stored.commitSeconds;
        trial.revealSeconds = stored.revealSeconds;
        trial.submitted = uint256(1) << job;
        trial.eligible = stored.eligible & ~_seatedSlots(round, stored);
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
    function _deposit(Round storage stored) private view returns (uint128) {
        uint256 seats = stored.appealSeats;
        return (APPEAL_BOND + (seats + (seats - 1) / 2) * stored.jurorFee).toUint128();
    }

    function _seatedSlots(uint256 round, Round storage stored) private view returns (uint256 slots) {
        Committee storage committee = _committees[round][stored.attempt];
        for (uint256 seat; seat < stored.committee; ++seat) {
            slots |= uint256(1) << registry.nodeOf(committee.jurors[seat]).slot;
        }
    }

    function _find(uint256 round, uint8 wanted, SettledLeaves[] calldata submissions)
        private
        pure
        returns (uint32 node, uint64 units)
    {
        for (uint256 i; i < submissions.length; ++i) {
            bytes calldata leaves = submissions[i].leaves;
            uint256 count = Leaves.count(leaves);
            for (uint256 k; k < count; ++k) {
                (uint8 job, uint64 claimed) = Leaves.read(leaves, k);
                if (job == wanted) return (submissions[i].node, claimed);
            }
        }
        revert NotSubmitted(round, wanted);
    }

    /// By `Rounds` alone, for an appeal whose trial is over: pays, slashes and settles the job.
    /// @param decided  its committee came to a verdict; otherwise the job is void
    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function conclude(uint256 appealed, bool decided) external {
        Round storage trial = _rounds[appealed];
        Appeal memory made = _appeals[appealed];
        if (!decided) return _conclude(appealed, trial, made, Verdict.Void, false);
        _payJurors(appealed, trial);
        _conclude(appealed, trial, made, _verdictIn(trial.accepted, trial.fraud, made.job), true);
    }

    // Registry, market and credits are ours, fixed at deployment, and call nobody but each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function _conclude(uint256 appealed, Round storage trial, Appeal memory made, Verdict verdict, bool decided)
        private
    {
        Round storage stored = _rounds[made.round];
        // A struct in memory starts as zeros, which is what is meant.
        // slither-disable-next-line uninitialized-local
        Costs memory costs;
        costs.fees = made.deposit - trial.reserved;
        uint256 share = _settleAppealed(stored, made, verdict);
        if (decided && verdict == made.against) {
            costs.forfeited = APPEAL_BOND;
        } else {
            if (decided) costs.awarded = _awardAppellant(stored, made, costs.fees);
            costs.covered = Math.min(costs.fees - Math.min(costs.fees, costs.awarded), share);
        }
        stored.appeals -= 1;
        _returnDeposit(appealed, trial, made, costs);
        emit AppealDecided(
            appealed, made.round, made.job, verdict, decided, costs.fees, costs.covered, costs.awarded, costs.forfeited
        );
        _end(appealed, trial, decided ? State.Settled : State.Void);
    }

    function _returnDeposit(uint256 appealed, Round storage trial, Appeal memory made, Costs memory costs) private {
        uint256 left = uint256(trial.reserved) + costs.covered - costs.forfeited;
        _rounds[made.round].reserved -= costs.covered.toUint128();
        trial.reserved = 0;
        if (left != 0) market.payOut(trial.run, appealed, made.appellant, left.toUint128());
        if (costs.forfeited != 0) market.payOut(trial.run, appealed, admin.treasury(), costs.forfeited.toUint128());
    }

    /// Gives a job its last verdict; returns what that leaves of its share of the reserve.
    function _settleAppealed(Round storage stored, Appeal memory made, Verdict verdict)
        private
        returns (uint256 share)
    {
        uint256 bit = uint256(1) << made.job;
        stored.accepted = verdict == Verdict.Accepted ? stored.accepted | bit : stored.accepted & ~bit;
        stored.fraud = verdict == Verdict.Fraud ? stored.fraud | bit : stored.fraud & ~bit;
        if (stored.consumed & bit != 0 && verdict != Verdict.Accepted) emit JobsTainted(made.round, stored.run, bit);
        uint256 units = verdict == Verdict.Accepted ? Math.min(made.units, stored.maxUnits) : 0;
        uint256 paid = units * stored.pricePerUnit;
        emit AppealedJobSettled(made.round, made.node, made.job, verdict, units, paid);
        address owner = registry.freeJobs(made.node, 1);
        _pay(made.round, stored, made.node, owner, paid);
        // What was taken, at most the bond, is told by the registry's own event.
        // slither-disable-next-line unused-return
        if (verdict == Verdict.Fraud) registry.slash(made.node, made.round, Cause.Fraud, FRAUD_SLASH);
        return uint256(stored.maxUnits) * stored.pricePerUnit - paid;
    }

    /// The majority that was overturned pays; the appellant is given the fees and a bounty out of that.
    function _awardAppellant(Round storage stored, Appeal memory made, uint256 fees) private returns (uint256 awarded) {
        uint256 losers = _sidingWith(made, stored);
        if (losers == 0) return 0;
        Committee storage committee = _committees[made.round][stored.attempt];
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
    function _sidingWith(Appeal memory made, Round storage stored) private view returns (uint256 seats) {
        Committee storage committee = _committees[made.round][stored.attempt];
        uint256 voting = stored.revealed & ~stored.abstained;
        uint256 count = 0;
        for (uint256 seat; seat < stored.committee; ++seat) {
            if (!_has(voting, seat)) continue;
            (uint256 accept, uint256 fraud) = _voteOf(committee, seat, stored.submitted);
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
