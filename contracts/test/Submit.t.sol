// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Refusal} from "../src/interfaces/IRounds.sol";
import {Scenario, Submission} from "./Scenario.sol";

contract SubmitTest is Scenario {
    uint256 internal round;

    function setUp() public override {
        super.setUp();
        round = openRound(fourEach());
        mine(1);
    }

    function _refuse(Submission memory item, Refusal reason) private {
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, reason));
        rounds.submit(round, assignments, packed(one(item)));
    }

    function test_batchIsEmittedAndOnlyItsDigestStored() public {
        Submission[] memory items = bothSubmissions(round, 10);
        for (uint256 i; i < 2; ++i) {
            vm.expectEmit(address(rounds));
            Submission memory item = items[i];
            emit IRoundsFacts.Submitted(round, item.node, 0, item.beacon, item.leaves, item.uri, item.signature);
        }
        vm.prank(coordinator);
        rounds.submit(round, fourEach(), packed(items));
        vm.assertEq(rounds.batchDigest(round, 0), keccak256(settled(items)));
        vm.assertEq(rounds.roundOf(round).submitted, 255);
        vm.assertEq(rounds.roundOf(round).batches, 1);
    }

    function testFuzz_nodeSubmitsForItselfInParts(uint8 mask) public {
        uint256 submitted;
        uint8 batch;
        for (uint8 job; job < 4; ++job) {
            if ((mask >> job) & 1 == 0) continue;
            vm.prank(keyAddress(workers[0]));
            rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(job, 1)))));
            submitted |= uint256(1) << job;
            ++batch;
        }
        vm.assertEq(rounds.roundOf(round).submitted, submitted);
        vm.assertEq(rounds.roundOf(round).batches, batch);
    }

    /// A node cannot submit another's job, or the same job twice.
    function test_jobIsSubmittedOnceByItsAssigneeOnly() public {
        _refuse(submission(round, workers[1], leaf(0, 1)), Refusal.NotAssigned);
        _refuse(submission(round, workers[1], leaf(8, 1)), Refusal.NotAssigned);
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(2, 1)))));
        _refuse(submission(round, workers[0], leaf(2, 1)), Refusal.AlreadySubmitted);
    }

    function test_signatureCoversEveryField() public {
        Submission memory item = submission(round, workers[0], leaf(0, 1));
        item.uri = "https://example.org/elsewhere/";
        _requireBadSignature(item);
        item = submission(round, workers[0], leaf(0, 1));
        item.beacon = bytes32(0);
        _requireBadSignature(item);
        item = submission(round, workers[0], leaf(0, 1));
        item.leaves = leaf(0, 2);
        _requireBadSignature(item);
        item = submission(round + 1, workers[0], leaf(0, 1));
        _requireBadSignature(item);
        item = submission(round, workers[0], leaf(0, 1));
        item.signature = new bytes(65);
        _requireBadSignature(item);
    }

    function _requireBadSignature(Submission memory item) private {
        _refuse(item, Refusal.BadSignature);
    }

    function test_rotatedKeySignsAndTheOldOneDoesNot() public {
        Submission memory old = submission(round, workers[0], leaf(0, 1));
        address owner = ownerNamed("worker", 0);
        bytes memory signature = binding(owner, 0xFEED, Role.Worker, 8);
        vm.prank(owner);
        registry.rotateKey(workers[0], vm.addr(0xFEED), block.timestamp, signature);
        _requireBadSignature(old);
        keyOf[workers[0]] = 0xFEED;
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(0, 1)))));
    }

    function test_partWithoutLeavesIsMalformed() public {
        _refuse(submission(round, workers[0], ""), Refusal.Malformed);
    }

    /// Every part says how long it is: one that would go on beyond the batch is not looked at, nor are those before it.
    function testFuzz_batchCutOffIsRefusedWhole(uint256 length) public {
        bytes memory parts = packed(bothSubmissions(round, 10));
        uint256 first = packed(one(submission(round, workers[0], leavesOf(0, 4, 10)))).length;
        length = bound(length, 1, parts.length - 1);
        vm.assume(length != first);
        assembly ("memory-safe") {
            mstore(parts, length)
        }
        bytes memory assignments = fourEach();
        (bool ok, bytes memory answer) =
            address(rounds).call(abi.encodeCall(rounds.submit, (round, assignments, parts)));
        vm.assertTrue(!ok && bytes4(answer) == IRoundsFacts.BatchCutOff.selector, "not cut off");
        vm.assertEq(rounds.roundOf(round).submitted, 0);
    }

    function test_cutOffBatchTellsWhatItLacks() public {
        bytes memory parts = bytes.concat(packed(one(submission(round, workers[0], leaf(0, 1)))), hex"00");
        bytes memory assignments = fourEach();
        uint256 need = parts.length - 1 + 104;
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.BatchCutOff.selector, parts.length, need));
        rounds.submit(round, assignments, parts);
    }

    /// Parts of any length and bytes are signed, emitted and hashed alike.
    function testFuzz_anyUriIsTaken(string memory uri) public {
        Submission memory item = submission(round, workers[0], leaf(0, 1));
        item.uri = uri;
        bytes32 digest = submissionDigest(round, item.node, item.beacon, item.leaves, uri);
        item.signature = signed(keyOf[item.node], digest);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.Submitted(round, item.node, 0, item.beacon, item.leaves, uri, item.signature);
        rounds.submit(round, fourEach(), packed(one(item)));
    }

    function test_leavesAscend() public {
        _refuse(submission(round, workers[0], bytes.concat(leaf(1, 1), leaf(0, 1))), Refusal.Malformed);
        _refuse(submission(round, workers[0], bytes.concat(leaf(1, 1), leaf(1, 1))), Refusal.Malformed);
    }

    /// One job beyond the round's, or of another node, among good ones is refused.
    function test_oneForeignJobSpoilsItsOwnPart() public {
        _refuse(submission(round, workers[0], bytes.concat(leaf(3, 1), leaf(4, 1))), Refusal.NotAssigned);
        _refuse(submission(round, workers[0], bytes.concat(leaf(3, 1), leaf(255, 1))), Refusal.NotAssigned);
        Submission memory unknown = submission(round, workers[0], leaf(3, 1));
        unknown.node = 99;
        _refuse(unknown, Refusal.NotAssigned);
    }

    function test_emptyBatchIsRefused() public {
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.None));
        rounds.submit(round, assignments, packed(new Submission[](0)));
    }

    function test_batchHoldsAtMost64Leaves() public {
        uint32 node = registerNode(Role.Worker, ownerNamed("large", 0), 65);
        pass(ACTIVATION);
        joinRun(run, node);
        bytes memory assignments = listing(node, 65);
        round = openRound(assignments);
        Submission[] memory items = one(submission(round, node, leavesOf(0, 65, 1)));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooManyLeaves.selector, 65));
        rounds.submit(round, assignments, packed(items));
        rounds.submit(round, assignments, packed(one(submission(round, node, leavesOf(0, 64, 1)))));
    }

    function testFuzz_lateIsMissing(uint256 late) public {
        late = bound(late, 1, 365 days);
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline);
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(0, 1)))));
        vm.warp(deadline + late);
        bytes memory assignments = fourEach();
        Submission[] memory items = one(submission(round, workers[0], leaf(1, 1)));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, deadline + late));
        rounds.submit(round, assignments, packed(items));
    }

    function test_otherAssignmentsAreRefused() public {
        bytes memory other = listing(workers[0], 8);
        bytes32 stored = keccak256(fourEach());
        Submission[] memory items = one(submission(round, workers[0], leaf(0, 1)));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongAssignments.selector, keccak256(other), stored));
        rounds.submit(round, other, packed(items));
    }
}
