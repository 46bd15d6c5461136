// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Refusal, State} from "../src/interfaces/IRounds.sol";
import {Scenario, Submission} from "./Scenario.sol";

/// @title A bad part of a batch is left out, and the rest is taken as if it had come alone
contract SubmitPartsTest is Scenario {
    uint256 internal round;

    function setUp() public override {
        super.setUp();
        round = openRound(fourEach());
        mine(1);
    }

    function _bad(Refusal kind) private view returns (Submission memory item) {
        if (kind == Refusal.Malformed) return submission(round, workers[0], "");
        if (kind == Refusal.NotAssigned) return submission(round, workers[0], leaf(4, 1));
        if (kind == Refusal.AlreadySubmitted) return submission(round, workers[0], leaf(0, 1));
        item = submission(round, workers[0], leaf(2, 1));
        item.uri = "https://example.org/elsewhere/";
    }

    /// `bad` at `place` among two good parts.
    function _mixed(Submission memory bad, uint256 place) private view returns (Submission[] memory items) {
        items = new Submission[](3);
        uint256 next;
        for (uint256 i; i < 3; ++i) {
            if (i == place) items[i] = bad;
            else items[i] = submission(round, workers[1], next++ == 0 ? leavesOf(4, 2, 10) : leavesOf(6, 2, 10));
        }
    }

    function _good(Submission[] memory items, uint256 place) private pure returns (Submission[] memory good) {
        good = new Submission[](items.length - 1);
        uint256 next;
        for (uint256 i; i < items.length; ++i) {
            if (i != place) good[next++] = items[i];
        }
    }

    function _judge() private {
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        voteAll(round, type(uint256).max, 0);
        tallyDue(round);
    }

    function testFuzz_badPartOfEachKindLeavesTheOthersUnharmed(uint8 kindSeed, uint8 placeSeed) public {
        Refusal kind = Refusal(bound(kindSeed, 1, 4));
        uint256 place = placeSeed % 3;
        Submission[] memory first = one(submission(round, workers[0], leaf(0, 10)));
        rounds.submit(round, fourEach(), packed(first));
        Submission[] memory items = _mixed(_bad(kind), place);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionRefused(round, workers[0], place, kind);
        rounds.submit(round, fourEach(), packed(items));
        Submission[] memory good = _good(items, place);
        vm.assertEq(rounds.roundOf(round).submitted, 0xf1);
        vm.assertEq(rounds.batchDigest(round, 1), keccak256(settled(good)));
        pass(601);
        _judge();
        rounds.settle(round, 1, fourEach(), settled(good));
        rounds.settle(round, 0, fourEach(), settled(first));
        requireState(round, State.Settled);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 10 * PRICE);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 1)), 4 * 10 * PRICE);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
    }

    /// A part left out is neither settled with the batch nor in its digest.
    function test_refusedPartIsNotSettled() public {
        Submission[] memory items = _mixed(_bad(Refusal.BadSignature), 1);
        rounds.submit(round, fourEach(), packed(items));
        pass(601);
        _judge();
        bytes memory whole = settled(items);
        bytes memory assignments = fourEach();
        bytes32 given = keccak256(whole);
        bytes32 stored = rounds.batchDigest(round, 0);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongBatch.selector, 0, given, stored));
        rounds.settle(round, 0, assignments, whole);
    }

    function test_batchOfBadPartsIsRefusedWithTheReasonOfItsFirst() public {
        Submission[] memory items = new Submission[](2);
        (items[0], items[1]) = (_bad(Refusal.NotAssigned), _bad(Refusal.Malformed));
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.NotAssigned));
        rounds.submit(round, assignments, packed(items));
        vm.assertEq(rounds.roundOf(round).batches, 0);
        vm.assertEq(rounds.batchDigest(round, 0), bytes32(0));
    }

    function test_partRepeatedWithinABatchIsTakenOnce() public {
        Submission[] memory items = new Submission[](2);
        (items[0], items[1]) = (submission(round, workers[0], leaf(1, 5)), submission(round, workers[0], leaf(1, 9)));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionRefused(round, workers[0], 1, Refusal.AlreadySubmitted);
        rounds.submit(round, fourEach(), packed(items));
        Submission[] memory good = one(items[0]);
        vm.assertEq(rounds.batchDigest(round, 0), keccak256(settled(good)));
    }

    /// A refused part spends nothing: its node may hand the same jobs in again, rightly.
    function test_refusedPartCanBeHandedInAgain() public {
        rounds.submit(round, fourEach(), packed(_mixed(_bad(Refusal.BadSignature), 0)));
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[0], leaf(2, 1)))));
        vm.assertEq(rounds.roundOf(round).submitted, 0xf4);
    }

    /// Refused leaves count to the most a batch may hold, so that junk cannot make it dearer than that.
    function test_refusedLeavesCountToTheLimit() public {
        uint32 node = registerNode(Role.Worker, ownerNamed("large", 0), 64);
        pass(ACTIVATION);
        joinRun(run, node);
        bytes memory assignments = listing(node, 64);
        round = openRound(assignments);
        Submission[] memory items = new Submission[](2);
        items[0] = submission(round, node, leavesOf(0, 64, 1));
        items[1] = submission(round, workers[0], leaf(0, 1));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooManyLeaves.selector, 65));
        rounds.submit(round, assignments, packed(items));
    }
}
