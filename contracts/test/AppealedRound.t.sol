// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption} from "../src/interfaces/IMarket.sol";
import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, State, Verdict} from "../src/interfaces/IRounds.sol";
import {Log} from "./Base.sol";
import {Appeals, Choice} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

/// @title Effects of an appeal on the round appealed against
contract AppealedRoundTest is Appeals {
    function _publish(uint256 round, uint256 jobs) private {
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, jobs);
        uint32 next = market.runOf(run).version + 1;
        vm.prank(trainer);
        market.publish(run, next, keccak256("manifest"), consumed);
    }

    function _count(Log[] memory logs, bytes32 topic) private pure returns (uint256 seen) {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == topic) ++seen;
        }
    }

    function test_otherJobsAreSettledWhileTheAppealIsPending() public {
        uint256 round = judged(Choice.Accept);
        uint256 appealRound = appealed(round);
        vm.warp(rounds.roundOf(round).deadline);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionSettled(round, workers[0], 0, 14, 0, 0, 3 * UNITS, 3 * UNITS * PRICE);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionSettled(round, workers[1], 0, 0xf0, 0, 0, 4 * UNITS, 4 * UNITS * PRICE);
        rounds.settle(round, 0, fourEach(), batchOf(round));
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 3 * UNITS * PRICE);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 1)), 4 * UNITS * PRICE);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 1);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
        requireState(round, State.Tallied);
        // The appeal's own window may have passed meanwhile; it then ends undecided.
        vm.warp(rounds.roundOf(appealRound).deadline);
        tried(appealRound, Choice.Accept);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 4 * UNITS * PRICE);
        requireState(round, State.Tallied);
        rounds.finish(round, fourEach());
        requireEnded(round);
    }

    function testFuzz_appealedJobIsSettledExactlyOnce(uint8 first, uint8 second, bool settledFirst) public {
        Choice before = Choice(first % 3);
        Choice last = Choice(second % 3);
        uint256 round = judged(before);
        uint256 appealRound = appealed(round);
        if (settledFirst) {
            // The appeal must be voted on within its own deadlines: drawn and committed before the window is over.
            rounds.draw(appealRound);
            vote(appealRound, all(SEATS, last));
            vm.warp(rounds.roundOf(round).deadline);
            rounds.settle(round, 0, fourEach(), batchOf(round));
            tallyDue(appealRound);
            rounds.finish(round, fourEach());
        } else {
            tried(appealRound, last);
            settleAll(round);
        }
        uint256 paid = last == Choice.Accept ? 4 : 3;
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), paid * UNITS * PRICE);
        uint256 slashed = last == Choice.Fraud ? FRAUD_SLASH : 0;
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - slashed);
        requireEnded(round);
        requireState(appealRound, State.Settled);
    }

    /// A submission whose jobs were all appealed has no settlement event.
    function test_submissionWhollyUnderAppealIsNotSettledTwice() public {
        uint256 round = openRound(fourEach());
        Submission[] memory items = one(submission(round, workers[0], leaf(0, UNITS)));
        rounds.submit(round, fourEach(), packed(items));
        pass(601);
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Accept));
        tallyDue(round);
        vm.prank(appellant);
        uint256 appealRound = rounds.appeal(round, 0, 0, settled(items));
        mine(1);
        tried(appealRound, Choice.Accept);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), UNITS * PRICE);
        vm.warp(rounds.roundOf(round).deadline);
        vm.recordLogs();
        rounds.settle(round, 0, fourEach(), settled(items));
        vm.assertEq(_count(vm.getRecordedLogs(), IRoundsFacts.SubmissionSettled.selector), 0);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), UNITS * PRICE);
        requireEnded(round);
    }

    function test_jurorsArePaidByTheLastVerdict() public {
        uint256 round = drawnRound(UNITS);
        Choice[] memory split = all(3, Choice.Fraud);
        split[1] = Choice.Accept;
        vote(round, split);
        tallyDue(round);
        uint32[] memory jurors = jurorsOf(round);
        tried(appealed(round), Choice.Accept);
        settleAll(round);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[0])), JUROR_FEE * 7 / 8);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[1])), JUROR_FEE);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[2])), JUROR_FEE * 7 / 8);
        requireEnded(round);
    }

    function testFuzz_consumedJobThatIsNoLongerAcceptedTaints(bool fraud) public {
        uint256 round = judged(Choice.Accept);
        _publish(round, 0xff);
        uint256 appealRound = appealed(round);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, fraud ? Choice.Fraud : Choice.Void));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JobsTainted(round, run, 1);
        rounds.tally(appealRound);
        vm.assertEq(rounds.roundOf(round).consumed, 0xff, "what was trained on stays on record");
    }

    /// An appeal that proves nothing against a job leaves the checkpoints trained on it alone.
    function testFuzz_consumedJobStaysAcceptedUnlessItIsProvedWrong(bool drawn) public {
        uint256 round = judged(Choice.Accept);
        _publish(round, 0xff);
        uint256 appealRound = appealed(round);
        vm.recordLogs();
        if (drawn) {
            tried(appealRound, Choice.Unavailable);
        } else {
            vm.warp(rounds.roundOf(appealRound).deadline + 1);
            rounds.draw(appealRound);
        }
        vm.assertEq(_count(vm.getRecordedLogs(), IRoundsFacts.JobsTainted.selector), 0);
        vm.assertEq(rounds.roundOf(round).accepted, 0xff);
        vm.assertEq(rounds.roundOf(round).fraud, 0);
    }

    function test_jobNobodyTrainedOnTaintsNothing() public {
        uint256 round = judged(Choice.Accept);
        _publish(round, 0xfe);
        uint256 appealRound = appealed(round);
        vm.recordLogs();
        tried(appealRound, Choice.Fraud);
        vm.assertEq(_count(vm.getRecordedLogs(), IRoundsFacts.JobsTainted.selector), 0);
    }

    function test_upheldAcceptanceTaintsNothing() public {
        uint256 round = judged(Choice.Accept);
        _publish(round, 0xff);
        uint256 appealRound = appealed(round);
        vm.recordLogs();
        tried(appealRound, Choice.Accept);
        vm.assertEq(_count(vm.getRecordedLogs(), IRoundsFacts.JobsTainted.selector), 0);
    }

    function test_checkpointDoesNotTakeWhatAnAppealRefused() public {
        uint256 round = judged(Choice.Accept);
        uint256 appealRound = appealed(round);
        tried(appealRound, Choice.Void);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, 0xff);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotAccepted.selector, round, 1));
        vm.prank(trainer);
        market.publish(run, 1, keccak256("manifest"), consumed);
        _publish(round, 0xfe);
    }

    function test_checkpointTakesAJobThatAnAppealRestored() public {
        uint256 round = judged(Choice.Fraud);
        tried(appealed(round), Choice.Accept);
        _publish(round, 0xff);
    }

    /// Jobs cannot be consumed under an appeal's number, pending or decided.
    function test_appealItselfIsNeverConsumed() public {
        uint256 appealRound = appealed(judged(Choice.Fraud));
        tried(appealRound, Choice.Accept);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(appealRound, 1);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, appealRound, State.Settled));
        vm.prank(trainer);
        market.publish(run, 1, keccak256("manifest"), consumed);
    }

    function test_twoAppealsOfARoundEndInAnyOrder() public {
        uint256 round = judged(Choice.Fraud);
        uint256 first = appealed(round);
        uint256 second = appealBy(stranger_(), round, 5);
        mine(1);
        rounds.draw(second);
        uint32[] memory jurors = jurorsOf(second);
        bytes memory reasons = reasonsFor(second, 0);
        for (uint256 i; i < SEATS; ++i) {
            commitVote(second, jurors[i], 0, 0x20, reasons);
        }
        for (uint256 i; i < SEATS; ++i) {
            revealVote(second, jurors[i], 0, 0x20, reasons);
        }
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealedJobSettled(round, workers[1], 5, Verdict.Fraud, 0, 0);
        rounds.tally(second);
        vm.assertEq(rounds.roundOf(round).appeals, 1);
        tried(first, Choice.Accept);
        vm.assertEq(rounds.roundOf(round).appeals, 0);
        settleAll(round);
        requireEnded(round);
        vm.assertEq(registry.nodeOf(workers[1]).bond, 8 * BOND_PER_JOB - FRAUD_SLASH);
    }

    function stranger_() private returns (address) {
        buy(stranger, DEPOSIT);
        return stranger;
    }

    /// A worker may retire before its appeal is lost; the rest of its bond is still slashed, and no more than that.
    function test_slashOnAppealReachesAnUnbondingBondAndNeverMore() public {
        uint256 round = judged(Choice.Accept);
        uint256 appealRound = appealed(round);
        vm.prank(ownerNamed("worker", 0));
        registry.retire(workers[0]);
        vm.prank(address(rounds));
        registry.slash(workers[0], 99, Cause.Fraud, 8 * BOND_PER_JOB - 5);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Fraud));
        vm.expectEmit(address(registry));
        emit IRegistry.NodeSlashed(workers[0], ownerNamed("worker", 0), round, Cause.Fraud, 5, 0);
        rounds.tally(appealRound);
        settleAll(round);
        requireEnded(round);
    }

    /// The run may close under an appeal: the deposit and the jurors are paid all the same, and the rest can be refunded.
    function test_closedRunHoldsUpNoAppeal() public {
        uint256 round = judged(Choice.Fraud);
        uint256 appealRound = appealed(round);
        vm.startPrank(requester);
        market.close(run);
        market.refund(run, market.runOf(run).escrow);
        vm.stopPrank();
        tried(appealRound, Choice.Accept);
        bytes memory batch = batchOf(round);
        vm.warp(rounds.roundOf(round).deadline);
        rounds.settle(round, 0, fourEach(), batch);
        requireEnded(round);
    }
}
