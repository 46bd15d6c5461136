// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract JoinTest is Scenario {
    function test_ownerJoinsAtTheRulesHashAndLeaves() public {
        uint256 other = openRun(runTerms());
        address owner = ownerNamed("worker", 0);
        vm.startPrank(owner);
        vm.expectEmit(address(market));
        emit IMarket.NodeJoined(other, workers[0], RULES);
        market.join(other, workers[0], RULES);
        vm.assertEq(market.joinedAt(other, workers[0]), RULES);
        vm.expectEmit(address(market));
        emit IMarket.NodeLeft(other, workers[0]);
        market.leave(other, workers[0]);
        vm.assertEq(market.joinedAt(other, workers[0]), bytes32(0));
        vm.stopPrank();
    }

    function testFuzz_otherRulesAreRefused(bytes32 rules) public {
        vm.assume(rules != RULES);
        vm.expectRevert(abi.encodeWithSelector(IMarket.WrongRules.selector, rules, RULES));
        vm.prank(ownerNamed("worker", 0));
        market.join(run, workers[0], rules);
    }

    function test_onlyTheOwnerJoinsANode() public {
        address owner = ownerNamed("worker", 0);
        bytes memory refusal = abi.encodeWithSelector(IMarket.NotNodeOwner.selector, workers[0], owner, stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        market.join(run, workers[0], RULES);
        vm.expectRevert(refusal);
        market.leave(run, workers[0]);
        vm.stopPrank();
    }

    function test_closedRunTakesNoNodes() public {
        vm.prank(requester);
        market.close(run);
        vm.expectRevert(abi.encodeWithSelector(IMarket.RunIsClosed.selector, run));
        vm.prank(ownerNamed("worker", 0));
        market.join(run, workers[0], RULES);
    }

    function test_nodeThatLeftIsNotListed() public {
        vm.prank(ownerNamed("worker", 0));
        market.leave(run, workers[0]);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotJoined.selector, run, workers[0]));
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
    }
}
