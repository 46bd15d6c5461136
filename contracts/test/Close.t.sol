// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, Round, State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract CloseTest is Scenario {
    function test_lastSubmissionClosesTheRound() public {
        uint256 round = openRound(fourEach());
        mine(1);
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[1], leavesOf(4, 4, 10)))));
        requireState(round, State.Open);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundClosed(round, 255, uint40(block.timestamp + 300));
        vm.prank(stranger);
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leavesOf(0, 4, 10)))));
        Round memory stored = rounds.roundOf(round);
        requireState(round, State.Closed);
        vm.assertEq(stored.closeBlock, block.number);
        vm.assertEq(stored.deadline, block.timestamp + 300);
    }

    function testFuzz_incompleteRoundWaitsForItsDeadline(uint256 early) public {
        uint256 round = openRound(fourEach());
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(0, 1)))));
        uint256 deadline = rounds.roundOf(round).deadline;
        early = bound(early, 0, 600);
        vm.warp(deadline - early);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline, deadline - early));
        rounds.close(round, assignments);
        vm.warp(deadline + 1);
        rounds.close(round, assignments);
        requireState(round, State.Closed);
    }

    function test_roundWithNothingSubmittedIsVoidAtOnce() public {
        uint256 round = openRound(fourEach());
        uint128 reserved = rounds.roundOf(round).reserved;
        vm.warp(block.timestamp + 601);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundVoided(round, reserved);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JobsFreed(round, 8);
        rounds.close(round, fourEach());
        requireState(round, State.Void);
        vm.assertEq(market.runOf(run).escrow, ESCROW);
        vm.assertEq(market.runOf(run).reserved, 0);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
        bytes memory assignments = fourEach();
        vm.expectRevert(
            abi.encodeWithSelector(IRoundsFacts.WrongAssignments.selector, keccak256(assignments), bytes32(0))
        );
        rounds.free(round, assignments);
    }

    function test_closedRoundIsNotClosedAgain() public {
        uint256 round = closedRound(10);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Closed));
        rounds.close(round, assignments);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, 9, State.None));
        rounds.close(9, assignments);
    }
}
