// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract CommitTest is Scenario {
    uint256 internal round;
    uint32[] internal jurors;

    function setUp() public override {
        super.setUp();
        round = drawnRound(10);
        jurors = jurorsOf(round);
    }

    function testFuzz_seatCommitsOnce(bytes32 commitment) public {
        vm.startPrank(keyAddress(jurors[1]));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.VoteCommitted(round, jurors[1], 0, commitment);
        rounds.commit(round, commitment);
        vm.assertEq(rounds.seatsOf(round)[1].commitment, commitment);
        vm.assertEq(rounds.roundOf(round).committed, 2);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AlreadyCommitted.selector, jurors[1]));
        rounds.commit(round, commitment);
        vm.stopPrank();
    }

    function test_lastCommitmentStartsRevealing() public {
        for (uint256 i; i < 3; ++i) {
            if (i == 2) {
                vm.expectEmit(address(rounds));
                emit IRoundsFacts.VoteCommitted(round, jurors[2], 0, bytes32(uint256(3)));
                vm.expectEmit(address(rounds));
                emit IRoundsFacts.RevealStarted(round, 0, uint40(block.timestamp + 100));
            }
            vm.prank(keyAddress(jurors[i]));
            rounds.commit(round, bytes32(i + 1));
        }
        vm.assertEq(rounds.roundOf(round).revealing, true);
    }

    function test_onlyTheSeatedCommit() public {
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotSeated.selector, round, 0));
        vm.prank(stranger);
        rounds.commit(round, bytes32(uint256(1)));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotSeated.selector, round, workers[0]));
        vm.prank(keyAddress(workers[0]));
        rounds.commit(round, bytes32(uint256(1)));
    }

    function testFuzz_commitmentsEndAtTheDeadline(uint256 late) public {
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline);
        vm.prank(keyAddress(jurors[0]));
        rounds.commit(round, bytes32(uint256(1)));
        late = deadline + bound(late, 1, 365 days);
        vm.warp(late);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, late));
        vm.prank(keyAddress(jurors[1]));
        rounds.commit(round, bytes32(uint256(1)));
    }

    function test_roundNotDrawnTakesNoCommitment() public {
        uint256 other = closedRound(10);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, other, State.Closed));
        vm.prank(keyAddress(jurors[0]));
        rounds.commit(other, bytes32(uint256(1)));
    }
}
