// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Refusal, State} from "../src/interfaces/IRounds.sol";
import {Scenario, Submission} from "./Scenario.sol";

contract RevokeKeyTest is Scenario {
    function _revoke(uint32 node) private returns (address owner) {
        owner = registry.ownerOf(node);
        vm.prank(owner);
        registry.revokeKey(node);
    }

    function test_revokedKeyEndsAtOnce() public {
        uint32 node = workers[0];
        address owner = registry.ownerOf(node);
        vm.expectEmit(address(registry));
        emit IRegistry.KeyRevoked(node, owner, keyAddress(node));
        _revoke(node);
        vm.assertEq(registry.keyOf(node), address(0));
        vm.assertEq(registry.nodeByKey(keyAddress(node)), 0);
        vm.assertEq(registry.nodeOf(node).revoked, true);
        vm.assertEq(registry.isListable(node), false);
        bytes memory assignments = listing(node, 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotListable.selector, node));
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
    }

    /// A thief of the key can no longer answer for jobs already listed.
    function test_revokedKeySignsNoSubmission() public {
        uint256 round = openRound(fourEach());
        bytes memory assignments = fourEach();
        Submission[] memory items = one(submission(round, workers[0], leaf(0, 1)));
        _revoke(workers[0]);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.BadSignature));
        rounds.submit(round, assignments, packed(items));
    }

    /// A malformed signature recovers to the zero address, which must not match a revoked key.
    function test_garbageIsNotTheSignatureOfANodeWithoutAKey() public {
        uint256 round = openRound(fourEach());
        bytes memory assignments = fourEach();
        _revoke(workers[0]);
        Submission[] memory items = one(submission(round, workers[0], leaf(0, 1)));
        items[0].signature = new bytes(65);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.BadSignature));
        rounds.submit(round, assignments, packed(items));
    }

    function test_validatorWithoutAKeyIsNotDrawnAndItsSeatIsAbsent() public {
        uint256 round = drawnRound(10);
        uint32 juror = jurorsOf(round)[0];
        address thief = keyAddress(juror);
        uint256 slot = registry.nodeOf(juror).slot;
        _revoke(juror);
        vm.assertEq(registry.eligible(), 7 & ~(uint256(1) << slot));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotSeated.selector, round, 0));
        vm.prank(thief);
        rounds.commit(round, keccak256("vote"));
        for (uint256 i = 1; i < 3; ++i) {
            commitVote(round, jurorsOf(round)[i], 255, 0, "");
        }
        pass(201);
        for (uint256 i = 1; i < 3; ++i) {
            revealVote(round, jurorsOf(round)[i], 255, 0, "");
        }
        requireState(round, State.Tallied);
        vm.assertEq(registry.nodeOf(juror).bond, VALIDATOR_BOND - ABSENCE_PENALTY);
    }

    function test_newKeyBringsTheNodeBackAndTheOldOneNever() public {
        uint32 node = validators[0];
        address old = keyAddress(node);
        address owner = _revoke(node);
        bytes memory again = binding(owner, keyOf[node], Role.Validator, 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.KeyInUse.selector, old, node));
        vm.prank(owner);
        registry.rotateKey(node, old, block.timestamp, again);
        bytes memory signature = binding(owner, 0xFEED, Role.Validator, 1);
        vm.prank(owner);
        registry.rotateKey(node, vm.addr(0xFEED), block.timestamp, signature);
        vm.assertEq(registry.nodeOf(node).revoked, false);
        vm.assertEq(registry.isListable(node), true);
        vm.assertEq(registry.eligible(), 7);
        vm.assertEq(registry.nodeByKey(vm.addr(0xFEED)), node);
    }

    function test_keyIsRevokedOnceByItsOwnerAndNotAfterWithdrawal() public {
        uint32 node = workers[0];
        address owner = registry.ownerOf(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwner.selector, node, owner, stranger));
        vm.prank(stranger);
        registry.revokeKey(node);
        _revoke(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyRevoked.selector, node));
        vm.prank(owner);
        registry.revokeKey(node);
        vm.prank(owner);
        registry.retire(node);
        pass(UNBONDING);
        vm.prank(owner);
        registry.withdraw(node);
        bytes memory gone = abi.encodeWithSelector(IRegistry.AlreadyWithdrawn.selector, node);
        vm.expectRevert(gone);
        vm.prank(owner);
        registry.revokeKey(node);
        bytes memory signature = binding(owner, 0xFEED, Role.Worker, 8);
        vm.expectRevert(gone);
        vm.prank(owner);
        registry.rotateKey(node, vm.addr(0xFEED), block.timestamp, signature);
    }
}
