// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts, State, Verdict} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Appeals on which no committee comes to a verdict
contract AppealUndecidedTest is Appeals {
    uint256 internal round;
    uint256 internal appealRound;
    uint256 internal before;

    function setUp() public override {
        super.setUp();
        before = credits.balanceOf(appellant);
        round = judged(Choice.Fraud);
        appealRound = appealed(round);
    }

    function _few(uint256 revealing) private pure returns (Choice[] memory choices) {
        choices = all(SEATS, Choice.Absent);
        for (uint256 i; i < revealing; ++i) {
            choices[i] = Choice.Accept;
        }
    }

    /// The job is void, its worker neither paid nor slashed, and the first committee unpunished; the appellant bears
    /// the fees, and the requester nothing.
    function _requireUndecided(uint256 fees) private {
        requireState(appealRound, State.Void);
        vm.assertEq(rounds.roundOf(round).accepted, 254);
        vm.assertEq(rounds.roundOf(round).fraud, 0);
        vm.assertEq(credits.balanceOf(appellant), before - fees);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB);
        vm.assertEq(registry.nodeOf(jurorsOf(round)[0]).bond, VALIDATOR_BOND);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 0);
        uint128 reserved = market.runOf(run).reserved;
        vm.assertEq(reserved, 8 * SHARE + 6 * JUROR_FEE);
        settleAll(round);
        requireEnded(round);
    }

    function testFuzz_noQuorumInAnyAttemptIsUndecided(uint8[4] memory few) public {
        uint256 fees = 0;
        for (uint256 i; i < 3; ++i) {
            tried(appealRound, _few(few[i] % 3));
            requireState(appealRound, State.Closed);
            vm.assertEq(rounds.roundOf(appealRound).attempt, i + 1);
            mine(1);
            fees += few[i] % 3 * JUROR_FEE;
        }
        rounds.draw(appealRound);
        vote(appealRound, _few(few[3] % 3));
        pass(400);
        fees += few[3] % 3 * JUROR_FEE;
        vm.expectEmit(address(market));
        emit IMarket.DepositPaidOut(run, appealRound, appellant, DEPOSIT - fees);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Void, false, fees, 0, 0);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundVoided(appealRound, 0);
        rounds.tally(appealRound);
        // Nobody withheld a reveal, so nobody is fined: the windows may have been at fault.
        vm.assertEq(registry.treasuryBalance(), 0);
        _requireUndecided(fees);
    }

    function test_redrawnAppealDecides() public {
        tried(appealRound, _few(2));
        mine(1);
        tried(appealRound, Choice.Accept);
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        requireState(appealRound, State.Settled);
        // The contradicted jurors give back all seven fees.
        vm.assertEq(credits.balanceOf(appellant), before + APPEAL_BOUNTY);
        settleAll(round);
        requireEnded(round);
    }

    /// The deposit holds the most that the jurors can earn, so that nothing is ever owed.
    function test_confirmedVerdictAfterThreeRedrawsUsesUpTheWholeDeposit() public {
        for (uint256 i; i < 3; ++i) {
            tried(appealRound, _few(2));
            mine(1);
        }
        tried(appealRound, Choice.Fraud);
        vm.assertEq(credits.balanceOf(appellant), before - DEPOSIT);
        vm.assertEq(credits.balanceOf(treasury), APPEAL_BOND);
        settleAll(round);
        requireEnded(round);
    }

    function testFuzz_appealNeverDrawnIsUndecidedAfterItsDeadline(uint256 late) public {
        uint256 deadline = rounds.roundOf(appealRound).deadline;
        vm.warp(deadline + bound(late, 1, MAX_ROUND));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Void, false, 0, 0, 0);
        vm.prank(stranger);
        rounds.draw(appealRound);
        _requireUndecided(0);
    }

    function test_appealWithoutVotesIsUndecidedAfterFourDraws() public {
        for (uint256 i; i < 4; ++i) {
            rounds.draw(appealRound);
            pass(201);
            tallyDue(appealRound);
            mine(1);
        }
        _requireUndecided(0);
    }

    function test_appealIsExpiredByAnyoneOnceItsRoundHasLastedLongEnough() public {
        rounds.draw(appealRound);
        uint256 endsBy = uint256(rounds.roundOf(round).openedAt) + MAX_ROUND;
        vm.warp(endsBy);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, endsBy, endsBy));
        rounds.expire(appealRound);
        vm.warp(endsBy + 1);
        vm.prank(stranger);
        rounds.expire(appealRound);
        _requireUndecided(0);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, appealRound, State.Void));
        rounds.expire(appealRound);
    }

    function test_everyoneAbstainingIsUndecidedAndFree() public {
        for (uint256 i; i < 4; ++i) {
            tried(appealRound, Choice.Abstain);
            mine(1);
        }
        vm.assertEq(registry.treasuryBalance(), 0);
        _requireUndecided(0);
    }

    /// Votes that split are no decision: the condemnation does not stand, and nobody is fined.
    function test_splitAppealDecidesNothing() public {
        Choice[] memory split = all(SEATS, Choice.Accept);
        (split[0], split[1], split[2]) = (Choice.Fraud, Choice.Fraud, Choice.Void);
        rounds.draw(appealRound);
        vote(appealRound, split);
        uint256 paid = JUROR_FEE;
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Void, false, paid, 0, 0);
        rounds.tally(appealRound);
        requireState(appealRound, State.Settled);
        vm.assertEq(registry.nodeOf(jurorsOf(round)[0]).bond, VALIDATOR_BOND);
        vm.assertEq(credits.balanceOf(appellant), before - paid);
        settleAll(round);
        requireEnded(round);
    }
}
