// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract ExpireTest is Scenario {
    function _requireExpires(uint256 round, State state) private {
        requireState(round, state);
        uint128 reserved = rounds.roundOf(round).reserved;
        uint256 endsBy = uint256(rounds.roundOf(round).openedAt) + MAX_ROUND;
        vm.warp(endsBy);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, endsBy, endsBy));
        rounds.expire(round);
        vm.warp(endsBy + 1);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundVoided(round, reserved);
        vm.prank(stranger);
        rounds.expire(round);
        requireState(round, State.Void);
        vm.assertEq(market.runOf(run).reserved, 0);
        rounds.free(round, fourEach());
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Void));
        rounds.expire(round);
    }

    function test_openRoundIsEndedByAnyoneAtTheLatest() public {
        _requireExpires(openRound(fourEach()), State.Open);
    }

    function test_closedRoundIsEndedByAnyoneAtTheLatest() public {
        _requireExpires(closedRound(10), State.Closed);
    }

    function test_voteIsEndedByAnyoneAtTheLatest() public {
        _requireExpires(drawnRound(10), State.Voting);
    }

    function testFuzz_roundInTimeIsNotEndedByForce(uint256 passed) public {
        uint256 round = drawnRound(10);
        uint256 endsBy = uint256(rounds.roundOf(round).openedAt) + MAX_ROUND;
        passed = bound(passed, 0, endsBy - block.timestamp);
        vm.warp(block.timestamp + passed);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, endsBy, block.timestamp));
        rounds.expire(round);
    }

    function test_roundWithAVerdictIsNotEndedByForce() public {
        uint256 round = talliedRound(10, 255, 0);
        vm.warp(block.timestamp + 2 * MAX_ROUND);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Tallied));
        rounds.expire(round);
        settleRound(round, 10);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Settled));
        rounds.expire(round);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, 9, State.None));
        rounds.expire(9);
    }

    /// A second committee is not drawn for a round that has lasted too long: it ends there.
    function test_drawAfterTheLongestRoundEndsIt() public {
        uint256 round = drawnRound(10);
        vm.warp(uint256(rounds.roundOf(round).openedAt) + MAX_ROUND + 1);
        tallyDue(round);
        requireState(round, State.Closed);
        mine(1);
        rounds.draw(round);
        requireState(round, State.Void);
        vm.assertEq(market.runOf(run).reserved, 0);
    }

    /// A bond can always be withdrawn: a round cannot outlast the unbonding delay of its nodes.
    function test_workerWhoseRoundNobodyMovesWithdrawsInTheEnd() public {
        uint256 round = openRound(fourEach());
        address owner = ownerNamed("worker", 0);
        vm.prank(owner);
        registry.retire(workers[0]);
        vm.assertTrue(market.terms().maxRoundSeconds < registry.terms().unbondingDelay, "a bond may leave first");
        pass(UNBONDING);
        rounds.expire(round);
        rounds.free(round, fourEach());
        vm.prank(owner);
        registry.withdraw(workers[0]);
        vm.assertEq(token.balanceOf(owner), 8 * BOND_PER_JOB);
    }
}
