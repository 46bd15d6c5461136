// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

contract RotateKeyTest is Scenario {
    function test_newKeyReplacesTheOldWhichStaysSpent() public {
        uint32 node = workers[0];
        address owner = registry.ownerOf(node);
        address old = keyAddress(node);
        bytes memory signature = binding(owner, 0xFEED, Role.Worker, 8);
        vm.expectEmit(address(registry));
        emit IRegistry.KeyRotated(node, owner, vm.addr(0xFEED));
        vm.prank(owner);
        registry.rotateKey(node, vm.addr(0xFEED), block.timestamp, signature);
        vm.assertEq(registry.nodeByKey(vm.addr(0xFEED)), node);
        vm.assertEq(registry.nodeByKey(old), 0);
        vm.assertEq(registry.keyOf(node), vm.addr(0xFEED));
        bytes memory back = binding(owner, keyOf[node], Role.Worker, 8);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.KeyInUse.selector, old, node));
        vm.prank(owner);
        registry.rotateKey(node, old, block.timestamp, back);
    }

    function test_onlyTheOwnerRotates() public {
        uint32 node = workers[0];
        address owner = registry.ownerOf(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwner.selector, node, owner, stranger));
        vm.prank(stranger);
        registry.rotateKey(node, vm.addr(0xFEED), block.timestamp, "");
    }
}
