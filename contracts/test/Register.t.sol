// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRegistry, Node, Role} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

contract RegisterTest is Scenario {
    address internal owner = address(0xA11CE);
    uint256 internal key = 0xBEEF;

    function _register(Role role, uint32 capacity) private returns (uint32) {
        bytes memory signature = binding(owner, key, role, capacity);
        vm.prank(owner);
        return registry.register(role, vm.addr(key), capacity, block.timestamp, signature);
    }

    function testFuzz_workerPostsABondForEachUnitOfCapacity(uint32 capacity) public {
        capacity = uint32(bound(capacity, 1, 50_000));
        uint256 bond = uint256(capacity) * BOND_PER_JOB;
        give(owner, bond, address(registry));
        uint40 activeAt = uint40(block.timestamp) + ACTIVATION;
        bytes memory signature = binding(owner, key, Role.Worker, capacity);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeRegistered(6, owner, vm.addr(key), Role.Worker, 0, capacity, bond, activeAt);
        vm.prank(owner);
        uint32 node = registry.register(Role.Worker, vm.addr(key), capacity, block.timestamp, signature);
        Node memory stored = registry.nodeOf(node);
        vm.assertEq(stored.owner, owner);
        vm.assertEq(stored.bond, bond);
        vm.assertEq(stored.capacity, capacity);
        vm.assertEq(registry.nodeByKey(vm.addr(key)), node);
        vm.assertEq(token.balanceOf(owner), 0);
        vm.assertEq(token.balanceOf(address(registry)), registry.totalBonded());
    }

    function test_nodeIsListableOnlyAfterTheActivationDelay() public {
        give(owner, BOND_PER_JOB, address(registry));
        uint32 node = _register(Role.Worker, 1);
        vm.warp(block.timestamp + ACTIVATION - 1);
        vm.assertEq(registry.isListable(node), false);
        vm.warp(block.timestamp + 1);
        vm.assertEq(registry.isListable(node), true);
    }

    function test_validatorIsOneTicketInTheLowestFreeSlot() public {
        uint32 node = registerNode(Role.Validator, owner, 1);
        vm.assertEq(registry.nodeOf(node).slot, 3);
        vm.assertEq(registry.nodeAt(3), node);
        vm.assertEq(registry.slotCount(), 4);
        vm.assertEq(registry.eligible(), 7, "not active yet");
        pass(ACTIVATION);
        vm.assertEq(registry.eligible(), 15, "active");
    }

    function test_thereAreAtMost256Slots() public {
        for (uint256 i = 3; i < 256; ++i) {
            registerNode(Role.Validator, ownerNamed("many", i), 1);
        }
        vm.assertEq(registry.slotCount(), 256);
        pass(ACTIVATION);
        vm.assertEq(registry.eligible(), type(uint256).max);
        give(owner, VALIDATOR_BOND, address(registry));
        bytes memory signature = binding(owner, key, Role.Validator, 1);
        vm.expectRevert(IRegistry.NoFreeSlot.selector);
        vm.prank(owner);
        registry.register(Role.Validator, vm.addr(key), 1, block.timestamp, signature);
    }

    function test_ownerIsAProviderOrAValidatorNeverBoth() public {
        give(owner, 1000 ether, address(registry));
        _register(Role.Worker, 1);
        key = 0xCAFE;
        bytes memory signature = binding(owner, key, Role.Validator, 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.OwnerHasOtherRole.selector, owner, Role.Worker));
        vm.prank(owner);
        registry.register(Role.Validator, vm.addr(key), 1, block.timestamp, signature);
    }

    function test_keyServesOneNodeForEver() public {
        give(owner, 1000 ether, address(registry));
        uint32 node = _register(Role.Worker, 1);
        bytes memory signature = binding(owner, key, Role.Worker, 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.KeyInUse.selector, vm.addr(key), node));
        vm.prank(owner);
        registry.register(Role.Worker, vm.addr(key), 1, block.timestamp, signature);
    }

    /// A binding signed for one owner cannot be used by another, so that a key cannot be front-run.
    function test_bindingOfAnotherOwnerIsRefused() public {
        give(stranger, 1000 ether, address(registry));
        bytes memory signature = binding(owner, key, Role.Worker, 1);
        vm.prank(stranger);
        try registry.register(Role.Worker, vm.addr(key), 1, block.timestamp, signature) {
            vm.assertTrue(false, "registered");
        } catch (bytes memory error) {
            // The recovered address follows from the digest and belongs to no account.
            vm.assertEq(bytes32(bytes4(error)), bytes32(IRegistry.BadKeySignature.selector));
        }
    }

    function test_garbageSignatureIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IRegistry.BadKeySignature.selector, address(0), vm.addr(key)));
        vm.prank(owner);
        registry.register(Role.Worker, vm.addr(key), 1, block.timestamp, hex"1234");
    }

    function test_keyZeroIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IRegistry.BadKeySignature.selector, address(0), address(0)));
        vm.prank(owner);
        registry.register(Role.Worker, address(0), 1, block.timestamp, new bytes(65));
    }

    function testFuzz_expiredBindingIsRefused(uint256 late) public {
        late = bound(late, 1, 365 days);
        uint256 deadline = block.timestamp;
        bytes memory signature = binding(owner, key, Role.Worker, 1);
        vm.warp(deadline + late);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.SignatureExpired.selector, deadline, deadline + late));
        vm.prank(owner);
        registry.register(Role.Worker, vm.addr(key), 1, deadline, signature);
    }

    function test_capacityAndRoleAreChecked() public {
        vm.startPrank(owner);
        vm.expectRevert(IRegistry.ZeroCapacity.selector);
        registry.register(Role.Worker, vm.addr(key), 0, block.timestamp, "");
        vm.expectRevert(IRegistry.UnknownRole.selector);
        registry.register(Role.None, vm.addr(key), 1, block.timestamp, "");
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOneTicket.selector, 2));
        registry.register(Role.Validator, vm.addr(key), 2, block.timestamp, "");
        vm.stopPrank();
        vm.expectRevert(IRegistry.UnknownRole.selector);
        registry.requiredBond(Role.None, 1);
    }

    function test_withoutTokensThereIsNoNode() public {
        bytes memory signature = binding(owner, key, Role.Worker, 1);
        vm.expectRevert();
        vm.prank(owner);
        registry.register(Role.Worker, vm.addr(key), 1, block.timestamp, signature);
        vm.assertEq(registry.nodeCount(), 5);
    }

    function test_unknownNodeHasNoViews() public {
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownNode.selector, 99));
        registry.nodeOf(99);
    }
}
