// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Node, Role} from "../src/interfaces/IRegistry.sol";
import {Round, State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

/// forge's own: reads a word of storage.
interface Storage {
    function load(address target, bytes32 slot) external view returns (bytes32);
}

/// @title Storage of an ended round is reused; its values must not show in the next
contract RoundStorageTest is Appeals {
    uint32 private large;

    function setUp() public override {
        super.setUp();
        large = registerNode(Role.Worker, ownerNamed("large", 0), 512);
        pass(ACTIVATION);
        joinRun(run, large);
    }

    /// Opens, fills, judges by `accept` and `fraud`, and settles a round of `jobs` jobs.
    function _whole(uint256 jobs, uint256 accept, uint256 fraud) private returns (uint256 round) {
        round = _judged(jobs, accept, fraud);
        vm.warp(rounds.roundOf(round).deadline);
        for (uint256 i; i < (jobs + 63) / 64; ++i) {
            rounds.settle(round, uint8(i), listing(large, jobs), settled(_part(round, jobs, i)));
        }
        requireState(round, State.Settled);
        _heal(large);
    }

    function _judged(uint256 jobs, uint256 accept, uint256 fraud) private returns (uint256 round) {
        bytes memory assignments = listing(large, jobs);
        round = openRound(assignments);
        mine(1);
        for (uint256 i; i < (jobs + 63) / 64; ++i) {
            rounds.submit(round, assignments, packed(_part(round, jobs, i)));
        }
        mine(1);
        rounds.draw(round);
        voteAll(round, accept, fraud);
        requireState(round, State.Tallied);
    }

    /// Restores a slashed bond.
    function _heal(uint32 node) private {
        Node memory stored = registry.nodeOf(node);
        uint256 missing = registry.requiredBond(stored.role, stored.capacity) - stored.bond;
        if (missing == 0) return;
        give(stored.owner, missing, address(registry));
        vm.prank(stored.owner);
        registry.topUp(node, uint128(missing));
    }

    function _part(uint256 round, uint256 jobs, uint256 index) private view returns (Submission[] memory) {
        uint256 first = 64 * index;
        uint256 count = jobs - first < 64 ? jobs - first : 64;
        return one(submission(round, large, leavesOf(first, count, UNITS)));
    }

    function _all(uint256 jobs) private pure returns (uint256) {
        return type(uint256).max >> (256 - jobs);
    }

    /// Up to 64 jobs all bitmaps share a word; up to 128 jobs both bitmaps of a vote do.
    function test_bitmapsOfEverySizeAreKeptApart() public {
        uint256[8] memory sizes = [uint256(1), 2, 63, 64, 65, 128, 129, 256];
        for (uint256 i; i < sizes.length; ++i) {
            uint256 all = _all(sizes[i]);
            uint256 accept = uint256(keccak256(abi.encode(i))) & all;
            uint256 fraud = uint256(keccak256(abi.encode(i, "fraud"))) & all & ~accept;
            Round memory stored = rounds.roundOf(_whole(sizes[i], accept, fraud));
            vm.assertEq(stored.submitted, all, "submitted");
            vm.assertEq(stored.accepted, accept, "accepted");
            vm.assertEq(stored.fraud, fraud, "fraud");
            vm.assertEq(stored.consumed, 0, "consumed");
            vm.assertEq(registry.nodeOf(large).inFlight, 0);
        }
    }

    function test_fraudInALargeRoundIsNoneInTheNext() public {
        _whole(200, 0, _all(200));
        uint256 round = _whole(200, _all(200) - 1, 0);
        vm.assertEq(rounds.roundOf(round).fraud, 0);
        vm.assertEq(rounds.roundOf(round).accepted, _all(200) - 1);
    }

    /// Live rounds have separate storage, in whatever order they end.
    function test_roundsThatLiveTogetherShareNothing() public {
        uint256 first = _judged(3, 7, 0);
        uint256 second = _judged(5, 31, 0);
        bytes32 told = keccak256(abi.encode(rounds.roundOf(second), rounds.seatsOf(second)));
        vm.warp(rounds.roundOf(second).deadline);
        rounds.settle(first, 0, listing(large, 3), settled(_part(first, 3, 0)));
        uint256 third = openRound(listing(large, 4));
        uint256 fourth = openRound(listing(large, 6));
        vm.assertEq(keccak256(abi.encode(rounds.roundOf(second), rounds.seatsOf(second))), told);
        vm.assertEq(rounds.roundOf(third).assignmentsHash, keccak256(listing(large, 4)));
        vm.assertEq(rounds.roundOf(fourth).assignmentsHash, keccak256(listing(large, 6)));
        rounds.settle(second, 0, listing(large, 5), settled(_part(second, 5, 0)));
        requireState(second, State.Settled);
    }

    /// Storage is taken last in, first out; entries released earlier are not lost.
    function test_allRoundStorageIsReused() public {
        uint256[3] memory made;
        for (uint256 i; i < 3; ++i) {
            made[i] = openRound(listing(large, 1 + i));
        }
        vm.warp(rounds.roundOf(made[0]).deadline + 1);
        for (uint256 i; i < 3; ++i) {
            rounds.close(made[i], listing(large, 1 + i));
        }
        for (uint256 i; i < 3; ++i) {
            made[i] = openRound(listing(large, 11 + i));
        }
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(rounds.roundOf(made[i]).assignmentsHash, keccak256(listing(large, 11 + i)));
        }
        vm.assertEq(_storageCount(), 3);
    }

    /// Number of entries ever created; it shares the first word with the number of rounds.
    function _storageCount() private view returns (uint256) {
        return uint24(uint256(Storage(address(vm)).load(address(rounds), 0)) >> 208);
    }

    function test_batchesOfAnEarlierRoundAreGone() public {
        uint256 before = _whole(129, _all(129), 0);
        vm.assertEq(rounds.batchDigest(before, 0), bytes32(0));
        uint256 round = openRound(listing(large, 129));
        vm.assertEq(rounds.batchDigest(round, 0), bytes32(0));
        rounds.submit(round, listing(large, 129), packed(_part(round, 129, 0)));
        vm.assertTrue(rounds.batchDigest(round, 0) != 0, "its own");
        vm.assertEq(rounds.batchDigest(round, 1), bytes32(0));
        Round memory stored = rounds.roundOf(round);
        vm.assertEq(stored.settledBatches, 0);
    }

    /// A void round leaves digests of unsettled batches behind.
    function test_batchesThatNeverSettledAreGone() public {
        uint256 before = openRound(listing(large, 129));
        mine(1);
        for (uint256 i; i < 3; ++i) {
            rounds.submit(before, listing(large, 129), packed(_part(before, 129, i)));
        }
        vm.warp(rounds.roundOf(before).deadline + 1);
        rounds.draw(before);
        requireState(before, State.Void);
        rounds.free(before, listing(large, 129));
        uint256 round = openRound(listing(large, 129));
        mine(1);
        for (uint8 i; i < 3; ++i) {
            vm.assertEq(rounds.batchDigest(before, i), bytes32(0));
            vm.assertEq(rounds.batchDigest(round, i), bytes32(0));
        }
        rounds.submit(round, listing(large, 129), packed(_part(round, 129, 1)));
        vm.assertTrue(rounds.batchDigest(round, 0) != 0, "its own");
        vm.assertEq(rounds.batchDigest(round, 1), bytes32(0));
    }

    function test_appealsOfAnEarlierRoundAreNone() public {
        uint256 before = judged(Choice.Fraud);
        uint256 appealRound = appealed(before);
        tried(appealRound, Choice.Fraud);
        settleAll(before);
        requireState(before, State.Settled);
        _heal(workers[0]);
        uint256 round = judged(Choice.Accept);
        vm.assertEq(rounds.roundOf(round).appealed, 0);
        vm.assertEq(rounds.roundOf(round).appeals, 0);
        uint256 second = appealBy(appellant, round, 5);
        vm.assertEq(rounds.roundOf(round).appealed, 1 << 5);
        mine(1);
        rounds.draw(second);
        uint32[] memory jurors = jurorsOf(second);
        vm.assertEq(jurors.length, SEATS);
        vote(second, all(SEATS, Choice.Accept));
        tallyDue(second);
        settleAll(round);
        requireEnded(round);
        vm.assertEq(rounds.roundOf(round).accepted, 255);
    }

    /// An ended round shows its results, and zero for the fields of a live round.
    function test_endedRoundTellsWhatItCameTo() public {
        uint256 round = _whole(70, _all(69), 1 << 69);
        Round memory stored = rounds.roundOf(round);
        vm.assertEq(stored.jobs, 70);
        vm.assertEq(stored.batches, 2);
        vm.assertEq(stored.settledBatches, 2);
        vm.assertEq(stored.accepted, _all(69));
        vm.assertEq(stored.openedAt + stored.jurorFee + stored.maxUnits + stored.slotCount, 0);
        vm.assertEq(stored.assignmentsHash, bytes32(0));
        vm.assertEq(rounds.seatsOf(round).length, 0);
    }

    /// A void round keeps its storage until its nodes are freed, as `free` reads it.
    function test_voidRoundKeepsItsStorageUntilFreed() public {
        uint256 round = openRound(listing(large, 2));
        vm.warp(block.timestamp + MAX_ROUND + 1);
        rounds.expire(round);
        uint256 other = openRound(listing(large, 3));
        vm.assertEq(rounds.roundOf(round).assignmentsHash, keccak256(listing(large, 2)));
        rounds.free(round, listing(large, 2));
        vm.assertEq(rounds.roundOf(round).assignmentsHash, bytes32(0));
        vm.assertEq(rounds.roundOf(other).assignmentsHash, keccak256(listing(large, 3)));
        vm.assertEq(registry.nodeOf(large).inFlight, 3);
    }
}
