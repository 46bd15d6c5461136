// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {IMarket} from "../src/interfaces/IMarket.sol";
import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, State, Verdict} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Costs and earnings of an appeal's verdict
contract AppealDecidedTest is Appeals {
    uint256 internal constant FEES = uint256(SEATS) * JUROR_FEE;

    uint256 internal before;

    function setUp() public override {
        super.setUp();
        before = credits.balanceOf(appellant);
    }

    function _bond(uint256 round, uint256 seat) private view returns (uint256) {
        return registry.nodeOf(jurorsOf(round)[seat]).bond;
    }

    function _leaveOf(uint256 round, uint256 bond) private {
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < jurors.length; ++i) {
            vm.prank(address(rounds));
            registry.slash(jurors[i], 99, Cause.Absence, VALIDATOR_BOND - bond);
        }
    }

    function test_honestWorkerFoundFraudulentIsRestoredAndTheMajorityPays() public {
        uint256 round = judged(Choice.Fraud);
        uint256 appealRound = appealed(round);
        uint32[] memory jurors = tried(appealRound, Choice.Accept);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), UNITS * PRICE);
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(_bond(round, i), VALIDATOR_BOND - OVERTURN_PENALTY);
        }
        vm.assertEq(credits.balanceOf(appellant), before + APPEAL_BOUNTY);
        vm.assertEq(registry.treasuryBalance(), 3 * OVERTURN_PENALTY - FEES - APPEAL_BOUNTY);
        for (uint256 i; i < SEATS; ++i) {
            vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[i])), JUROR_FEE);
        }
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        requireState(appealRound, State.Settled);
        requireBooksInOrder();
        settleAll(round);
        requireEnded(round);
    }

    function test_everyPaymentOfAnOverturnedVerdictIsAnEvent() public {
        uint256 round = judged(Choice.Fraud);
        uint32[] memory jurors = jurorsOf(round);
        uint256 appealRound = appealed(round);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Accept));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundTallied(appealRound, 0, 1, 0, uint40(block.timestamp));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JurorSettled(appealRound, jurorsOf(appealRound)[0], 1, JUROR_FEE);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealedJobSettled(round, workers[0], 0, Verdict.Accepted, UNITS, UNITS * PRICE);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeSlashed(
            jurors[0],
            registry.ownerOf(jurors[0]),
            round,
            Cause.Overturned,
            OVERTURN_PENALTY,
            VALIDATOR_BOND - OVERTURN_PENALTY
        );
        vm.expectEmit(address(registry));
        emit IRegistry.SlashesAwarded(appellant, round, FEES + APPEAL_BOUNTY);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsGranted(appellant, round, FEES + APPEAL_BOUNTY);
        vm.expectEmit(address(market));
        emit IMarket.DepositPaidOut(run, appealRound, appellant, DEPOSIT - FEES);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Accepted, true, FEES, FEES + APPEAL_BOUNTY, 0);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundSettled(appealRound, 0);
        rounds.tally(appealRound);
    }

    function test_appellantWhoseAppealFailsLosesItsBondToTheTreasuryAndTheFees() public {
        uint256 round = judged(Choice.Fraud);
        uint256 appealRound = appealed(round);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Fraud));
        vm.expectEmit(address(market));
        emit IMarket.DepositPaidOut(run, appealRound, appellant, 6 * JUROR_FEE);
        vm.expectEmit(address(market));
        emit IMarket.DepositPaidOut(run, appealRound, treasury, APPEAL_BOND);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Fraud, true, FEES, 0, APPEAL_BOND);
        rounds.tally(appealRound);
        vm.assertEq(credits.balanceOf(appellant), before - APPEAL_BOND - FEES);
        vm.assertEq(credits.balanceOf(treasury), APPEAL_BOND);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - FRAUD_SLASH);
        vm.assertEq(registry.treasuryBalance(), FRAUD_SLASH);
        vm.assertEq(_bond(round, 0), VALIDATOR_BOND);
        settleAll(round);
        requireEnded(round);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - FRAUD_SLASH);
    }

    /// Work wrongly accepted is not paid once its appeal finds fraud, and its worker is slashed.
    function test_fraudThatWasAcceptedIsSlashedOnAppeal() public {
        uint256 round = judged(Choice.Accept);
        uint256 appealRound = appealed(round);
        tried(appealRound, Choice.Fraud);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 0);
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - FRAUD_SLASH);
        vm.assertEq(_bond(round, 2), VALIDATOR_BOND - OVERTURN_PENALTY);
        vm.assertEq(rounds.roundOf(round).accepted, 254);
        vm.assertEq(rounds.roundOf(round).fraud, 1);
        vm.assertEq(credits.balanceOf(appellant), before + APPEAL_BOUNTY);
        settleAll(round);
        requireEnded(round);
    }

    function test_voidVerdictIsAppealedLikeAnyOther() public {
        uint256 round = judged(Choice.Void);
        tried(appealed(round), Choice.Accept);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), UNITS * PRICE);
        vm.assertEq(_bond(round, 1), VALIDATOR_BOND, "void and accepted may differ honestly");
        vm.assertEq(credits.balanceOf(appellant), before - FEES, "so that the appellant bears the fees");
        settleAll(round);
        requireEnded(round);
    }

    /// Void because the jurors were split three ways: the one that the appeal contradicts pays, though no majority.
    function test_aContradictedVoteOfASplitCommitteePays() public {
        uint256 round = drawnRound(UNITS);
        Choice[] memory split = all(3, Choice.Accept);
        (split[1], split[2]) = (Choice.Fraud, Choice.Void);
        vote(round, split);
        tallyDue(round);
        vm.assertEq(rounds.roundOf(round).accepted | rounds.roundOf(round).fraud, 254);
        uint256 appealRound = appealed(round);
        rounds.draw(appealRound);
        vote(appealRound, all(SEATS, Choice.Accept));
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealDecided(appealRound, round, 0, Verdict.Accepted, true, FEES, FEES + APPEAL_BOUNTY, 0);
        rounds.tally(appealRound);
        vm.assertEq(_bond(round, 0), VALIDATOR_BOND);
        vm.assertEq(_bond(round, 1), VALIDATOR_BOND - OVERTURN_PENALTY);
        vm.assertEq(_bond(round, 2), VALIDATOR_BOND);
        vm.assertEq(credits.balanceOf(appellant), before + APPEAL_BOUNTY);
        settleAll(round);
        requireEnded(round);
    }

    /// The bounty is under half of the penalties paid.
    function testFuzz_bountyIsUnderHalfOfWhatTheMajorityPaid(uint256 bond) public {
        bond = bound(bond, 0, OVERTURN_PENALTY);
        uint256 round = judged(Choice.Fraud);
        _leaveOf(round, bond);
        uint256 kept = registry.treasuryBalance();
        uint256 appealRound = appealed(round);
        tried(appealRound, Choice.Accept);
        uint256 taken = 3 * bond;
        vm.assertEq(_bond(round, 0), 0);
        uint256 awarded = kept + taken - registry.treasuryBalance();
        uint256 repaid = taken < FEES ? taken : FEES;
        uint256 bounty = awarded - repaid;
        vm.assertTrue(bounty == 0 || 2 * bounty < taken, "under half");
        vm.assertLe(bounty, APPEAL_BOUNTY);
        uint256 most = taken == 0 ? 0 : (taken - 1) / 2;
        if (most > taken - repaid) most = taken - repaid;
        vm.assertEq(bounty, most < APPEAL_BOUNTY ? most : APPEAL_BOUNTY);
        // Fees that the contradicted jurors' bonds do not cover stay with the appellant.
        vm.assertEq(credits.balanceOf(appellant), before + bounty + repaid - FEES);
        settleAll(round);
        requireEnded(round);
    }

    /// Jurors without a bond cannot pay: the appellant bears the fees, and the requester nothing.
    function test_feesNobodyCanPayStayWithTheAppellant() public {
        uint256 round = openRound(fourEach());
        rounds.submit(round, fourEach(), packed(bothSubmissions(round, MAX_UNITS)));
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Fraud));
        tallyDue(round);
        _leaveOf(round, 0);
        vm.prank(appellant);
        uint256 appealRound = rounds.appeal(round, 0, 0, settled(bothSubmissions(round, MAX_UNITS)));
        mine(1);
        tried(appealRound, Choice.Accept);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), SHARE);
        vm.assertEq(credits.balanceOf(appellant), before - FEES);
        vm.warp(rounds.roundOf(round).deadline);
        rounds.settle(round, 0, fourEach(), settled(bothSubmissions(round, MAX_UNITS)));
        requireEnded(round);
    }

    /// Jurors against the first verdict lose nothing; jurors against the final one earn nothing.
    function test_onlyTheOverturnedSeatsPay() public {
        uint256 round = drawnRound(UNITS);
        Choice[] memory split = all(3, Choice.Fraud);
        split[1] = Choice.Accept;
        vote(round, split);
        tallyDue(round);
        uint256 appealRound = appealed(round);
        Choice[] memory second = all(SEATS, Choice.Accept);
        second[4] = Choice.Fraud;
        uint32[] memory jurors = tried(appealRound, second);
        vm.assertEq(_bond(round, 0), VALIDATOR_BOND - OVERTURN_PENALTY);
        vm.assertEq(_bond(round, 1), VALIDATOR_BOND);
        vm.assertEq(_bond(round, 2), VALIDATOR_BOND - OVERTURN_PENALTY);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[4])), 0);
        vm.assertEq(registry.treasuryBalance(), 2 * OVERTURN_PENALTY - 4 * JUROR_FEE - APPEAL_BOUNTY);
    }
}
