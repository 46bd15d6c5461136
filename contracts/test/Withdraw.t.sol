// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Cause, IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

contract WithdrawTest is Scenario {
    function _retire(uint32 node) private returns (address owner) {
        owner = registry.ownerOf(node);
        vm.prank(owner);
        registry.retire(node);
    }

    function test_retiredNodeIsNeitherListedNorDrawn() public {
        uint40 now_ = uint40(block.timestamp);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeRetired(validators[0], ownerNamed("validator", 0), now_, now_ + UNBONDING);
        _retire(validators[0]);
        vm.assertEq(registry.eligible(), 6, "eligible");
        vm.assertEq(registry.nodeAt(0), validators[0]);
        _retire(workers[0]);
        vm.assertEq(registry.isListable(workers[0]), false);
    }

    function testFuzz_bondLeavesAfterTheDelayAndNotBefore(uint256 early) public {
        early = bound(early, 1, UNBONDING);
        uint32 node = workers[0];
        address owner = _retire(node);
        uint256 at = block.timestamp + UNBONDING;
        vm.warp(at - early);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillBonded.selector, node, at, 0));
        vm.prank(owner);
        registry.withdraw(node);
        vm.warp(at);
        vm.expectEmit(address(registry));
        emit IRegistry.BondWithdrawn(node, owner, 8 * BOND_PER_JOB);
        vm.prank(owner);
        registry.withdraw(node);
        vm.assertEq(token.balanceOf(owner), 8 * BOND_PER_JOB);
        vm.assertEq(token.balanceOf(address(registry)), registry.totalBonded());
    }

    function test_bondWithJobsInFlightStays() public {
        uint32 node = workers[0];
        openRound(fourEach());
        address owner = _retire(node);
        uint256 at = block.timestamp + UNBONDING;
        vm.warp(at);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillBonded.selector, node, at, 4));
        vm.prank(owner);
        registry.withdraw(node);
        closeDue(1, fourEach());
        vm.prank(owner);
        registry.withdraw(node);
    }

    function testFuzz_slashReachesAnUnbondingBondAndNeverMore(uint256 amount) public {
        uint32 node = workers[0];
        uint256 bond = registry.nodeOf(node).bond;
        address owner = _retire(node);
        uint256 taken = amount < bond ? amount : bond;
        vm.expectEmit(address(registry));
        emit IRegistry.NodeSlashed(node, owner, 9, Cause.Fraud, taken, bond - taken);
        vm.prank(address(rounds));
        vm.assertEq(registry.slash(node, 9, Cause.Fraud, amount), taken);
        vm.assertEq(registry.treasuryBalance(), taken);
        pass(UNBONDING);
        vm.expectEmit(address(registry));
        emit IRegistry.BondWithdrawn(node, owner, bond - taken);
        vm.prank(owner);
        vm.assertEq(registry.withdraw(node), bond - taken);
    }

    /// A slot is freed once: a second withdrawal must not free the slot of its next holder.
    function test_withdrawalFreesTheSlotOnce() public {
        uint32 node = validators[0];
        address owner = _retire(node);
        pass(UNBONDING);
        vm.prank(owner);
        registry.withdraw(node);
        vm.assertEq(registry.nodeAt(0), 0);
        uint32 heir = registerNode(Role.Validator, address(0x41), 1);
        vm.assertEq(registry.nodeOf(heir).slot, 0);
        vm.assertEq(registry.slotCount(), 3);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyWithdrawn.selector, node));
        vm.prank(owner);
        registry.withdraw(node);
        vm.assertEq(registry.nodeAt(0), heir);
        vm.assertEq(registry.nodeByKey(keyAddress(node)), 0);
    }

    function test_onlyTheOwnerRetiresAndWithdraws() public {
        uint32 node = workers[0];
        address owner = registry.ownerOf(node);
        bytes memory refusal = abi.encodeWithSelector(IRegistry.NotOwner.selector, node, owner, stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        registry.retire(node);
        vm.expectRevert(refusal);
        registry.withdraw(node);
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotRetired.selector, node));
        vm.prank(owner);
        registry.withdraw(node);
        _retire(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyRetired.selector, node));
        vm.prank(owner);
        registry.retire(node);
    }

    function test_onlyRoundsCountsAndSlashes() public {
        bytes memory refusal = abi.encodeWithSelector(IRegistry.NotRounds.selector, address(this));
        vm.expectRevert(refusal);
        registry.reserveJobs(listing(workers[0], 1));
        vm.expectRevert(refusal);
        registry.freeJobs(listing(workers[0], 1));
        vm.expectRevert(refusal);
        registry.slash(workers[0], 1, Cause.Fraud, 1);
    }

    /// A node's free capacity must not overflow into that of the neighbouring node, whoever frees its jobs.
    function test_noMoreIsTakenOutOfFlightThanIsThere() public {
        bytes memory one_ = listing(workers[0], 1);
        vm.prank(address(rounds));
        registry.reserveJobs(one_);
        vm.prank(address(rounds));
        registry.freeJobs(one_);
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 1));
        vm.prank(address(rounds));
        registry.freeJobs(one_);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
    }
}
