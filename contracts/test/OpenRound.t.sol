// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket, RunTerms} from "../src/interfaces/IMarket.sol";
import {Cause, IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Round} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract OpenRoundTest is Scenario {
    function _refuse(bytes memory assignments, bytes memory error) private {
        vm.expectRevert(error);
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
    }

    function testFuzz_openingReservesThePayAndCountsJobsInFlight(uint256 first, uint256 second) public {
        first = bound(first, 1, 8);
        second = bound(second, 1, 8);
        bytes memory assignments = bytes.concat(listing(workers[0], first), listing(workers[1], second));
        uint16 jobs = uint16(first + second);
        uint128 reserve = uint128(uint256(jobs) * MAX_UNITS * PRICE + 6 * JUROR_FEE);
        vm.expectEmit(address(market));
        emit IMarket.EscrowReserved(run, 1, reserve);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundOpened(1, run, 7, 0, jobs, 3, reserve, uint40(block.timestamp + 600), assignments);
        vm.prank(coordinator);
        uint256 round = rounds.open(run, 7, 0, assignments);
        Round memory stored = rounds.roundOf(round);
        vm.assertEq(stored.assignmentsHash, keccak256(assignments));
        vm.assertEq(stored.openBlock, block.number);
        vm.assertEq(stored.eligible, 7);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, first);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, second);
        vm.assertEq(market.runOf(run).reserved, reserve);
        vm.assertEq(market.runOf(run).escrow, ESCROW - reserve);
    }

    function testFuzz_jobsInFlightStayWithinTheBondedCapacity(uint256 first, uint256 second) public {
        first = bound(first, 1, 8);
        second = bound(second, 9 - first, 8);
        openRound(listing(workers[0], first));
        _refuse(
            listing(workers[0], second),
            abi.encodeWithSelector(IRegistry.OverCapacity.selector, workers[0], first + second, 8)
        );
    }

    function test_nodeListedTwiceHoldsBothRanges() public {
        bytes memory assignments = bytes.concat(listing(workers[0], 2), listing(workers[1], 1), listing(workers[0], 3));
        openRound(assignments);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 5);
    }

    function test_slashedAndRetiredNodesAreNotListed() public {
        vm.prank(address(rounds));
        registry.slash(workers[0], 1, Cause.Fraud, 1);
        _refuse(listing(workers[0], 1), abi.encodeWithSelector(IRegistry.NotListable.selector, workers[0]));
        vm.prank(ownerNamed("worker", 1));
        registry.retire(workers[1]);
        _refuse(listing(workers[1], 1), abi.encodeWithSelector(IRegistry.NotListable.selector, workers[1]));
    }

    function test_malformedAssignmentsAreRefused() public {
        _refuse("", abi.encodeWithSelector(IRoundsFacts.BadAssignments.selector));
        _refuse(
            bytes.concat(listing(workers[0], 1), hex"00"), abi.encodeWithSelector(IRoundsFacts.BadAssignments.selector)
        );
        _refuse(listing(99, 1), abi.encodeWithSelector(IRoundsFacts.NotJoined.selector, run, 99));
    }

    function test_moreThan256JobsAreRefused() public {
        address owner = ownerNamed("large", 0);
        uint32 node = registerNode(Role.Worker, owner, 300);
        pass(ACTIVATION);
        joinRun(run, node);
        _refuse(
            bytes.concat(listing(node, 256), listing(node, 1)),
            abi.encodeWithSelector(IRoundsFacts.BadAssignments.selector)
        );
        openRound(listing(node, 256));
    }

    function test_onlyTheCoordinatorOfAnOpenRunOpens() public {
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotCoordinator.selector, coordinator, stranger));
        vm.prank(stranger);
        rounds.open(run, 1, 0, assignments);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.UnknownVersion.selector, run, 1));
        vm.prank(coordinator);
        rounds.open(run, 1, 1, assignments);
        vm.prank(requester);
        market.close(run);
        _refuse(assignments, abi.encodeWithSelector(IMarket.RunIsClosed.selector, run));
    }

    function test_unfundedRunOpensNothing() public {
        run = openRun(runTerms());
        joinRun(run, workers[0]);
        uint256 need = MAX_UNITS * uint256(PRICE) + 6 * JUROR_FEE;
        _refuse(listing(workers[0], 1), abi.encodeWithSelector(IMarket.EscrowTooSmall.selector, run, 0, need));
    }

    function test_fewerValidatorsThanSeatsIsRefused() public {
        RunTerms memory terms = runTerms();
        terms.committee = 5;
        run = openRun(terms);
        joinRun(run, workers[0]);
        _refuse(listing(workers[0], 1), abi.encodeWithSelector(IRoundsFacts.TooFewValidators.selector, 3, 5));
    }
}
