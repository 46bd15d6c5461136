// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Errors} from "@openzeppelin/contracts/utils/Errors.sol";
import {Settlement} from "../src/Settlement.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {IMarket} from "../src/interfaces/IMarket.sol";
import {Appeal, IRoundsFacts, Round, State, Verdict} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

/// @title Appealing the verdict on one job
contract AppealTest is Appeals {
    function _refuse(uint256 round, uint8 job, uint8 batch, bytes memory items, bytes memory error) private {
        vm.expectRevert(error);
        vm.prank(appellant);
        rounds.appeal(round, job, batch, items);
    }

    function test_anyoneAppealsByADepositOfTheBondAndAllFees() public {
        uint256 round = judged(Choice.Fraud);
        uint40 deadline = uint40(block.timestamp + 300);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.AppealOpened(
            2, round, appellant, 0, Verdict.Fraud, workers[0], UNITS, 500_000 + (5 + 3 * 2) * 1000, deadline
        );
        vm.expectEmit(address(market));
        emit IMarket.DepositLocked(run, 2, appellant, DEPOSIT);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsLocked(appellant, run, DEPOSIT);
        uint256 before = credits.balanceOf(appellant);
        vm.assertEq(appealBy(appellant, round, 0), 2);
        vm.assertEq(before - credits.balanceOf(appellant), DEPOSIT);
        vm.assertEq(market.runOf(run).reserved, rounds.roundOf(round).reserved + DEPOSIT);
    }

    /// `Rounds` passes what it does not know to `Settlement`, but the end of an appeal is for itself to call.
    function test_nobodyEndsAnAppealThatWasNeverJudged() public {
        uint256 number = appealBy(appellant, judged(Choice.Fraud), 0);
        Settlement passed = Settlement(address(rounds));
        vm.expectRevert(Errors.FailedCall.selector);
        passed.conclude(number, false);
        vm.expectRevert(Errors.FailedCall.selector);
        passed.conclude(number, true);
        requireState(number, State.Closed);
    }

    function test_appealIsARoundUnderItsOwnNumber() public {
        uint256 round = judged(Choice.Void);
        Round memory parent = rounds.roundOf(round);
        pass(77);
        uint256 number = appealBy(appellant, round, 0);
        vm.assertEq(rounds.roundCount(), number);
        vm.assertEq(rounds.appealOf(round, 0), number);
        vm.assertEq(rounds.appealOf(round, 1), 0);
        Appeal memory made = rounds.appealAt(number);
        vm.assertEq(made.round, round);
        vm.assertEq(uint256(made.against), uint256(Verdict.Void));
        vm.assertEq(made.node, workers[0]);
        vm.assertEq(made.units, UNITS);
        vm.assertEq(made.appellant, appellant);
        vm.assertEq(made.deposit, DEPOSIT);
        Round memory appealRound = rounds.roundOf(number);
        requireState(number, State.Closed);
        vm.assertEq(appealRound.jobs, 0);
        vm.assertEq(appealRound.submitted, 1);
        vm.assertEq(appealRound.committee, SEATS);
        vm.assertEq(appealRound.openedAt, parent.openedAt);
        vm.assertEq(appealRound.closeBlock, block.number);
        vm.assertEq(appealRound.reserved, DEPOSIT);
        vm.assertEq(rounds.roundOf(round).appeals, 1);
        vm.assertEq(rounds.roundOf(round).appealed, 1);
    }

    function testFuzz_firstCommitteeNeverSitsAgain(bytes32 first, bytes32 second) public {
        vm.assume(first != 0 && second != 0);
        uint256 round = closedRound(UNITS);
        vm.setBlockhash(rounds.roundOf(round).closeBlock, first);
        rounds.draw(round);
        uint256 seated;
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < 3; ++i) {
            seated |= uint256(1) << registry.nodeOf(jurors[i]).slot;
        }
        vote(round, all(3, Choice.Fraud));
        tallyDue(round);
        uint256 number = appealed(round);
        vm.assertEq(rounds.roundOf(number).eligible, 511 & ~seated);
        vm.setBlockhash(rounds.roundOf(number).closeBlock, second);
        rounds.draw(number);
        uint32[] memory again = jurorsOf(number);
        vm.assertEq(again.length, SEATS);
        for (uint256 i; i < SEATS; ++i) {
            vm.assertEq((seated >> registry.nodeOf(again[i]).slot) & 1, 0, "seated twice");
        }
    }

    function testFuzz_windowEndsWhenSettlementBegins(uint256 early, uint256 late) public {
        uint256 round = judged(Choice.Fraud);
        uint256 deadline = rounds.roundOf(round).deadline;
        (early, late) = (bound(early, 1, CHALLENGE), bound(late, 0, 365 days));
        bytes memory batch = batchOf(round);
        bytes memory assignments = fourEach();
        vm.warp(deadline - early);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline, deadline - early));
        rounds.settle(round, 0, assignments, batch);
        appealBy(appellant, round, 0);
        vm.warp(deadline + late);
        _refuse(round, 1, 0, batch, abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, deadline + late));
        rounds.settle(round, 0, assignments, batch);
    }

    /// After a very late tally there is no time for an appeal: the verdict stands.
    function testFuzz_verdictTalliedTooLateToTryAgainStands(uint256 late) public {
        uint256 round = drawnRound(UNITS);
        uint32[] memory jurors = jurorsOf(round);
        bytes memory reasons = reasonsFor(round, 254);
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], 254, 1, reasons);
        }
        revealVote(round, jurors[0], 254, 1, reasons);
        revealVote(round, jurors[1], 254, 1, reasons);
        Round memory stored = rounds.roundOf(round);
        uint256 latest = uint256(stored.openedAt) + MAX_ROUND - 4
            * (uint256(stored.drawSeconds) + stored.commitSeconds + stored.revealSeconds);
        late = bound(late, 1, 365 days);
        vm.warp(latest);
        uint256 before = vm.snapshotState();
        tallyDue(round);
        appealBy(appellant, round, 0);
        vm.revertToState(before);
        vm.warp(latest + late);
        tallyDue(round);
        bytes memory error = abi.encodeWithSelector(IRoundsFacts.TooLate.selector, latest, latest + late);
        _refuse(round, 0, 0, batchOf(round), error);
        settleAll(round);
        vm.assertEq(rounds.roundOf(round).fraud, 1);
    }

    function test_appealComesBeforeTheWindowsLastSecondIsOver() public {
        uint256 round = judged(Choice.Fraud);
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline);
        bytes memory error = abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, deadline);
        _refuse(round, 0, 0, batchOf(round), error);
        vm.warp(deadline - 1);
        appealBy(appellant, round, 0);
    }

    /// A round is opened only if both committees can be seated.
    function test_roundNeedsValidatorsForItsAppealsToo() public {
        openRound(fourEach());
        for (uint256 i; i < 2; ++i) {
            vm.prank(ownerNamed("validator", i));
            registry.retire(validators[i]);
        }
        bytes memory assignments = listing(workers[0], 1);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooFewValidators.selector, 7, 8));
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
    }

    function test_jobIsAppealedOnceAndEachOnItsOwn() public {
        uint256 round = judged(Choice.Fraud);
        appealBy(appellant, round, 0);
        bytes memory batch = batchOf(round);
        _refuse(round, 0, 0, batch, abi.encodeWithSelector(IRoundsFacts.AlreadyAppealed.selector, round, 0));
        vm.assertEq(appealBy(appellant, round, 7), 3);
        vm.assertEq(rounds.appealAt(3).node, workers[1]);
        vm.assertEq(uint256(rounds.appealAt(3).against), uint256(Verdict.Accepted));
        vm.assertEq(rounds.roundOf(round).appealed, 0x81);
        vm.assertEq(rounds.roundOf(round).appeals, 2);
    }

    /// Neither a job nor an appeal can be appealed twice.
    function test_decidedJobIsNotAppealedAgain() public {
        uint256 round = judged(Choice.Fraud);
        uint256 number = appealed(round);
        tried(number, Choice.Accept);
        bytes memory batch = batchOf(round);
        _refuse(round, 0, 0, batch, abi.encodeWithSelector(IRoundsFacts.AlreadyAppealed.selector, round, 0));
        _refuse(number, 0, 0, batch, abi.encodeWithSelector(IRoundsFacts.WrongState.selector, number, State.Settled));
    }

    function test_batchIsTheOneThatHoldsTheJob() public {
        uint256 round = openRound(fourEach());
        Submission[] memory first = one(submission(round, workers[0], leavesOf(0, 4, UNITS)));
        Submission[] memory second = one(submission(round, workers[1], leavesOf(4, 3, UNITS)));
        rounds.submit(round, fourEach(), packed(first));
        rounds.submit(round, fourEach(), packed(second));
        pass(601);
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Accept));
        tallyDue(round);
        bytes32 stored = rounds.batchDigest(round, 1);
        bytes32 given = keccak256(settled(first));
        _refuse(round, 0, 1, settled(first), abi.encodeWithSelector(IRoundsFacts.WrongBatch.selector, 1, given, stored));
        _refuse(
            round, 0, 9, settled(first), abi.encodeWithSelector(IRoundsFacts.WrongBatch.selector, 9, given, bytes32(0))
        );
        _refuse(round, 0, 1, settled(second), abi.encodeWithSelector(IRoundsFacts.NotSubmitted.selector, round, 0));
        // Job 7 was never submitted.
        _refuse(round, 7, 1, settled(second), abi.encodeWithSelector(IRoundsFacts.NotSubmitted.selector, round, 7));
        vm.prank(appellant);
        rounds.appeal(round, 6, 1, settled(second));
    }

    function test_roundWithoutAVerdictIsNotAppealed() public {
        uint256 round = drawnRound(UNITS);
        bytes memory batch = batchOf(round);
        _refuse(round, 0, 0, batch, abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Voting));
        _refuse(9, 0, 0, batch, abi.encodeWithSelector(IRoundsFacts.WrongState.selector, 9, State.None));
    }

    function testFuzz_withoutTheWholeDepositThereIsNoAppeal(uint256 have) public {
        have = bound(have, 1, DEPOSIT - 1);
        uint256 round = judged(Choice.Fraud);
        buy(stranger, have);
        bytes memory batch = batchOf(round);
        vm.expectRevert(abi.encodeWithSelector(ICredits.CreditTooSmall.selector, stranger, have, DEPOSIT));
        vm.prank(stranger);
        rounds.appeal(round, 0, 0, batch);
        vm.assertEq(rounds.appealOf(round, 0), 0);
    }

    function test_appealTakesNoWorkAndFreesNone() public {
        uint256 number = appealed(judged(Choice.Fraud));
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, number, State.Closed));
        rounds.submit(number, assignments, packed(new Submission[](0)));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, number, State.Closed));
        rounds.close(number, assignments);
        vm.warp(rounds.roundOf(number).deadline + 1);
        rounds.draw(number);
        requireState(number, State.Void);
        vm.expectRevert(
            abi.encodeWithSelector(IRoundsFacts.WrongAssignments.selector, keccak256(assignments), bytes32(0))
        );
        rounds.free(number, assignments);
    }
}
