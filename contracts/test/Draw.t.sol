// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";
import {IMarket, RunTerms} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Draw} from "../src/libraries/Draw.sol";
import {Scenario} from "./Scenario.sol";

contract DrawTest is Scenario {
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    function _drawAndCheck(uint256 round, uint256 seedBlock, bytes32 seed) private {
        uint32[] memory jurors = new uint32[](3);
        uint8[] memory slots = Draw.slots(seed, 0, 3, 7, 3);
        for (uint256 i; i < 3; ++i) {
            jurors[i] = registry.nodeAt(slots[i]);
        }
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.CommitteeDrawn(round, 0, uint64(seedBlock), seed, jurors, uint40(block.timestamp + 200));
        vm.prank(stranger);
        rounds.draw(round);
        requireState(round, State.Voting);
        vm.assertEq(jurorsOf(round)[2], jurors[2]);
    }

    function test_seedIsTheHashOfTheCloseBlock() public {
        uint256 round = closedRound(10);
        uint256 closeBlock = rounds.roundOf(round).closeBlock;
        vm.setBlockhash(closeBlock, keccak256("seed"));
        _drawAndCheck(round, closeBlock, keccak256("seed"));
    }

    function test_seedIsNotReadyInTheClosingBlock() public {
        uint256 round = submittedRound(10);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.SeedNotReady.selector, block.number));
        rounds.draw(round);
    }

    function testFuzz_withoutHistoryTheSeedMovesOnEvery256Blocks(uint256 passed) public {
        passed = bound(passed, 0, 100_000);
        uint256 round = closedRound(10);
        uint256 closeBlock = rounds.roundOf(round).closeBlock;
        vm.etch(HISTORY, "");
        mine(passed);
        uint256 seedBlock = closeBlock + passed / 256 * 256;
        vm.setBlockhash(seedBlock, keccak256("seed"));
        _drawAndCheck(round, seedBlock, keccak256("seed"));
    }

    function testFuzz_withHistoryTheSeedMovesOnEvery8191Blocks(uint256 passed) public {
        passed = bound(passed, 257, 100_000);
        uint256 round = closedRound(10);
        uint256 closeBlock = rounds.roundOf(round).closeBlock;
        // Answers every block number with its keccak, as the history contract would with its hash.
        vm.etch(HISTORY, hex"60206000600037602060002060005260206000f3");
        mine(passed);
        uint256 seedBlock = closeBlock + passed / 8191 * 8191;
        bytes32 seed = keccak256(abi.encode(seedBlock));
        vm.setBlockhash(seedBlock, seed);
        _drawAndCheck(round, seedBlock, seed);
    }

    function testFuzz_committeeIsDistinctAndEligible(bytes32 seed, uint256 eligible, uint8 seats, uint16 slots)
        public
        pure
    {
        slots = uint16(bound(slots, 16, 256));
        seats = uint8(bound(seats, 0, 7)) * 2 + 1;
        // Fifteen at least, so that every committee can be filled.
        eligible = (eligible | 0x7fff) & (type(uint256).max >> (256 - slots));
        uint8[] memory drawn = Draw.slots(seed, 1, slots, eligible, seats);
        vm.assertEq(drawn.length, seats);
        uint256 seen;
        for (uint256 i; i < seats; ++i) {
            uint256 bit = uint256(1) << drawn[i];
            vm.assertTrue(eligible & bit != 0, "ineligible");
            vm.assertTrue(seen & bit == 0, "repeated");
            seen |= bit;
        }
    }

    function testFuzz_drawFollowsItsDefinition(bytes32 seed, uint8 attempt) public pure {
        uint8[] memory drawn = Draw.slots(seed, attempt, 256, type(uint256).max, 1);
        vm.assertEq(drawn[0], uint256(keccak256(abi.encode(seed, attempt, uint256(0)))) % 256);
    }

    function test_drawProbesLinearlyWhenTriesRunOut() public pure {
        uint8[] memory drawn = Draw.slots(bytes32(0), 0, 256, (uint256(1) << 255) | 5, 3);
        vm.assertEq(
            (uint256(1) << drawn[0]) | (uint256(1) << drawn[1]) | (uint256(1) << drawn[2]), (uint256(1) << 255) | 5
        );
    }

    function test_drawAmong256SlotsStaysUnderItsGasTarget() public {
        for (uint256 i = 3; i < 256; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("many", i), 1));
        }
        pass(ACTIVATION);
        RunTerms memory terms = runTerms();
        terms.committee = 5;
        run = openRun(terms);
        fundRun(run, ESCROW / 2);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
        uint256 round = closedRound(10);
        uint256 before = gasleft();
        rounds.draw(round);
        vm.assertLe(before - gasleft() + 21_000, 150_000, "draw");
    }

    /// A round ends and frees its bonds even if every party is silent.
    function testFuzz_roundNobodyDrawsIsVoidAfterItsDeadline(uint256 late) public {
        uint256 round = closedRound(10);
        vm.warp(rounds.roundOf(round).deadline + bound(late, 1, 365 days));
        uint128 reserved = rounds.roundOf(round).reserved;
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundVoided(round, reserved);
        vm.expectEmit(address(market));
        emit IMarket.EscrowReleased(run, round, reserved);
        rounds.draw(round);
        requireState(round, State.Void);
        vm.assertEq(market.runOf(run).escrow, ESCROW);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JobsFreed(round, 8);
        rounds.free(round, fourEach());
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
        bytes memory assignments = fourEach();
        vm.expectRevert(
            abi.encodeWithSelector(IRoundsFacts.WrongAssignments.selector, keccak256(assignments), bytes32(0))
        );
        rounds.free(round, assignments);
    }

    function test_openRoundIsNotFreed() public {
        uint256 round = closedRound(10);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Closed));
        rounds.free(round, assignments);
    }
}
