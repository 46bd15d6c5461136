// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

contract TopUpTest is Scenario {
    function testFuzz_anyoneMayTopUpABond(uint128 amount) public {
        amount = uint128(bound(amount, 1, token.FAUCET_CAP()));
        give(stranger, amount, address(registry));
        uint32 node = workers[0];
        uint256 before = registry.nodeOf(node).bond;
        vm.expectEmit(address(registry));
        emit IRegistry.BondToppedUp(node, registry.ownerOf(node), amount, before + amount);
        vm.prank(stranger);
        registry.topUp(node, amount);
        vm.assertEq(registry.nodeOf(node).bond, before + amount);
        vm.assertEq(token.balanceOf(address(registry)), registry.totalBonded());
    }

    function testFuzz_slashedValidatorIsOutUntilItsBondIsWholeAgain(uint128 slash) public {
        slash = uint128(bound(slash, 1, VALIDATOR_BOND));
        uint32 node = validators[1];
        vm.prank(address(rounds));
        registry.slash(node, 1, Cause.Absence, slash);
        vm.assertEq(registry.isListable(node), false);
        vm.assertEq(registry.eligible(), 5, "out");
        give(stranger, slash, address(registry));
        vm.startPrank(stranger);
        if (slash > 1) registry.topUp(node, slash - 1);
        vm.assertEq(registry.eligible(), 5, "one wei short");
        registry.topUp(node, 1);
        vm.stopPrank();
        vm.assertEq(registry.eligible(), 7, "back");
    }

    function test_nothingAndTheRetiredAreRefused() public {
        uint32 node = workers[0];
        vm.expectRevert(IRegistry.ZeroAmount.selector);
        registry.topUp(node, 0);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownNode.selector, 99));
        registry.topUp(99, 1);
        vm.prank(ownerNamed("worker", 0));
        registry.retire(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyRetired.selector, node));
        registry.topUp(node, 1);
    }
}
