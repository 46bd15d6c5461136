// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

contract FinishTest is Appeals {
    function _refuse(uint256 round, uint256 batches, uint256 appeals) private {
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotFinished.selector, round, batches, appeals));
        rounds.finish(round, assignments);
    }

    function test_roundEndsOnceItsBatchesAreSettledAndItsAppealsDecided() public {
        uint256 round = judged(Choice.Fraud);
        uint256 appealRound = appealed(round);
        _refuse(round, 1, 1);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Accept));
        settleAll(round);
        _refuse(round, 0, 1);
        tallyDue(appealRound);
        uint128 left = rounds.roundOf(round).reserved;
        // Three jurors are still to be paid: seven of eight of their bits agree with the last verdict.
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JurorSettled(round, jurorsOf(round)[0], 7, JUROR_FEE * 7 / 8);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundSettled(round, left - 3 * (JUROR_FEE * 7 / 8));
        vm.prank(stranger);
        rounds.finish(round, fourEach());
        requireEnded(round);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Settled));
        rounds.finish(round, assignments);
    }

    function test_roundWithUnsettledBatchesDoesNotEnd() public {
        uint256 round = judged(Choice.Accept);
        pass(CHALLENGE);
        _refuse(round, 1, 0);
        settleAll(round);
        requireEnded(round);
    }

    function test_finishTakesTheRoundsOwnAssignments() public {
        uint256 round = judged(Choice.Accept);
        bytes memory other = listing(workers[0], 8);
        bytes32 stored = keccak256(fourEach());
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongAssignments.selector, keccak256(other), stored));
        rounds.finish(round, other);
    }

    /// Missing jobs stay in flight until the round ends, and no longer.
    function test_finishFreesMissingJobs() public {
        uint256 round = openRound(fourEach());
        Submission[] memory items = one(submission(round, workers[0], leavesOf(0, 2, UNITS)));
        rounds.submit(round, fourEach(), packed(items));
        pass(601);
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Fraud));
        tallyDue(round);
        vm.prank(appellant);
        uint256 appealRound = rounds.appeal(round, 0, 0, settled(items));
        mine(1);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Accept));
        vm.warp(rounds.roundOf(round).deadline);
        rounds.settle(round, 0, fourEach(), settled(items));
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 3);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 4);
        tallyDue(appealRound);
        rounds.finish(round, fourEach());
        requireEnded(round);
    }
}
