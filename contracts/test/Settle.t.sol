// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Bitmaps} from "../src/libraries/Bitmaps.sol";
import {Scenario, Submission} from "./Scenario.sol";

contract SettleTest is Scenario {
    function _owner(uint256 index) private pure returns (address) {
        return ownerNamed("worker", index);
    }

    function testFuzz_acceptedUnitsArePaidAndFraudIsSlashed(uint64 units, uint256 accept, uint256 fraud) public {
        (accept, fraud) = (accept & 255, fraud & ~accept & 255);
        uint256 round = talliedRound(units, accept, fraud);
        settleRound(round, units);
        uint256 capped = units < MAX_UNITS ? units : MAX_UNITS;
        for (uint256 i; i < 2; ++i) {
            uint256 mine_ = i == 0 ? 15 : 240;
            uint256 slashed = Bitmaps.count(fraud & mine_) * FRAUD_SLASH;
            vm.assertEq(credits.balanceOf(_owner(i)), Bitmaps.count(accept & mine_) * capped * PRICE);
            vm.assertEq(registry.nodeOf(workers[i]).bond, 8 * BOND_PER_JOB - slashed);
            vm.assertEq(registry.nodeOf(workers[i]).inFlight, 0);
        }
        vm.assertEq(registry.treasuryBalance(), Bitmaps.count(fraud) * FRAUD_SLASH);
        vm.assertEq(market.runOf(run).reserved, 0);
        vm.assertEq(market.runOf(run).escrow + credits.totalSupply() - credits.totalLocked(), ESCROW);
        vm.assertEq(credits.totalSupply(), token.balanceOf(address(credits)));
        requireState(round, State.Settled);
    }

    function test_settlementSaysWhatItPaid() public {
        uint256 round = talliedRound(10, 0x37, 0x08);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionSettled(round, workers[0], 0, 7, 8, 0, 30, 90);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeSlashed(
            workers[0], _owner(0), round, Cause.Fraud, FRAUD_SLASH, 8 * BOND_PER_JOB - FRAUD_SLASH
        );
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.SubmissionSettled(round, workers[1], 0, 0x30, 0, 0xc0, 20, 60);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsEarned(_owner(0), run, round, workers[0], 90);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JurorSettled(round, jurorsOf(round)[0], 8, JUROR_FEE);
        uint128 released = uint128(8 * uint256(MAX_UNITS) * PRICE + 3 * JUROR_FEE - 150);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundSettled(round, released);
        settleRound(round, 10);
    }

    /// A juror is paid for agreeing, so that calling everything void does not pay.
    function testFuzz_jurorEarnsByAgreement(uint8 truth, uint8 odd) public {
        uint256 round = drawnRound(10);
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < 3; ++i) {
            uint256 accept = i == 2 ? odd : truth;
            commitVote(round, jurors[i], accept, 0, reasonsFor(round, accept));
        }
        for (uint256 i; i < 3; ++i) {
            uint256 accept = i == 2 ? odd : truth;
            revealVote(round, jurors[i], accept, 0, reasonsFor(round, accept));
        }
        tallyDue(round);
        settleRound(round, 10);
        uint256 agree = 8 - Bitmaps.count(uint256(truth) ^ odd);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[0])), JUROR_FEE);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[2])), JUROR_FEE * agree / 8);
    }

    function test_roundIsSettledInPartsInAnyOrder() public {
        uint256 round = openRound(fourEach());
        Submission[] memory first = one(submission(round, workers[0], leavesOf(0, 4, 10)));
        Submission[] memory second = one(submission(round, workers[1], leavesOf(4, 4, 10)));
        rounds.submit(round, fourEach(), packed(first));
        rounds.submit(round, fourEach(), packed(second));
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        voteAll(round, 255, 0);
        tallyDue(round);
        rounds.settle(round, 1, fourEach(), settled(second));
        vm.assertEq(credits.balanceOf(_owner(1)), 120);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 4);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
        requireState(round, State.Tallied);
        rounds.settle(round, 0, fourEach(), settled(first));
        requireState(round, State.Settled);
    }

    function test_batchIsSettledOnceAndAsSubmitted() public {
        uint256 round = openRound(fourEach());
        Submission[] memory first = one(submission(round, workers[0], leavesOf(0, 4, 10)));
        rounds.submit(round, fourEach(), packed(first));
        rounds.submit(round, fourEach(), packed(one(submission(round, workers[1], leavesOf(4, 4, 10)))));
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        voteAll(round, 255, 0);
        tallyDue(round);
        bytes memory assignments = fourEach();
        first[0].leaves = leavesOf(0, 4, 11);
        bytes memory richer = settled(first);
        first[0].leaves = leavesOf(0, 4, 10);
        bytes32 stored = rounds.batchDigest(round, 0);
        bytes32 given = keccak256(richer);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongBatch.selector, 0, given, stored));
        rounds.settle(round, 0, assignments, richer);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongBatch.selector, 2, given, bytes32(0)));
        rounds.settle(round, 2, assignments, richer);
        rounds.settle(round, 0, assignments, settled(first));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AlreadySettled.selector, 0));
        rounds.settle(round, 0, assignments, settled(first));
    }

    function test_missingJobsAreUnpaidAndFreed() public {
        uint256 round = openRound(fourEach());
        Submission[] memory items = one(submission(round, workers[0], leavesOf(1, 2, 10)));
        rounds.submit(round, fourEach(), packed(items));
        pass(601);
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        voteAll(round, type(uint256).max, 0);
        tallyDue(round);
        vm.assertEq(rounds.roundOf(round).accepted, 6);
        rounds.settle(round, 0, fourEach(), settled(items));
        vm.assertEq(credits.balanceOf(_owner(0)), 60);
        vm.assertEq(credits.balanceOf(_owner(1)), 0);
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0);
    }

    /// A bond already gone does not stop the others from being paid.
    function test_emptyBondBlocksNobody() public {
        uint256 round = talliedRound(10, 0xf0, 0x0f);
        vm.prank(address(rounds));
        registry.slash(workers[0], 99, Cause.Fraud, 8 * BOND_PER_JOB);
        settleRound(round, 10);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 0);
        vm.assertEq(credits.balanceOf(_owner(1)), 120);
    }

    function test_slashGoesToTheTreasuryAndNotToTheJurors() public {
        uint256 round = talliedRound(10, 0, 255);
        uint32[] memory jurors = jurorsOf(round);
        settleRound(round, 10);
        vm.assertEq(registry.treasuryBalance(), 8 * FRAUD_SLASH);
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(token.balanceOf(registry.ownerOf(jurors[i])), 0);
            vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[i])), JUROR_FEE);
        }
    }

    /// Work that no committee judged is not paid when its window lapses.
    function test_unjudgedWorkIsNotPaid() public {
        uint256 round = closedRound(10);
        bytes memory batch = settled(bothSubmissions(round, 10));
        bytes memory assignments = fourEach();
        pass(30 days);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Closed));
        rounds.settle(round, 0, assignments, batch);
    }

    function test_appealsAreNotOffered() public {
        uint256 round = talliedRound(10, 255, 0);
        bytes memory batch = settled(bothSubmissions(round, 10));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AppealsNotOffered.selector, round));
        rounds.appeal(round, 0, 0, batch);
    }

    function test_settlementNeedsAVerdict() public {
        uint256 round = drawnRound(10);
        bytes memory batch = settled(bothSubmissions(round, 10));
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Voting));
        rounds.settle(round, 0, assignments, batch);
    }
}
