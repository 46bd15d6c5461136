// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {RunTerms} from "../src/interfaces/IMarket.sol";
import {IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Refusal, State} from "../src/interfaces/IRounds.sol";
import {Log} from "./Base.sol";
import {Appeals, Choice} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

/// @title Bugs of other deployed marketplaces, each prevented by a test
contract RegressionsTest is Appeals {
    mapping(address => uint256) private _rebuilt;
    uint256 private _locked;
    uint256 private _supply;

    /// A quorum contract that reverted whenever its quorum was reached: nothing was ever decided.
    function testFuzz_quorumIsReachableInCommitteesOfEverySize(uint8 size, uint8 present) public {
        uint8 seats = uint8(bound(size, 0, 7)) * 2 + 1;
        uint256 voting = bound(present, (seats + 1) / 2, seats);
        for (uint256 i = validators.length; i < 15; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("validator", i), 1));
        }
        pass(ACTIVATION);
        RunTerms memory terms = runTerms();
        terms.committee = seats;
        run = openRun(terms);
        fundRun(run, ESCROW);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
        uint256 round = drawnRound(UNITS);
        Choice[] memory choices = all(seats, Choice.Absent);
        for (uint256 i; i < voting; ++i) {
            choices[i] = Choice.Accept;
        }
        vote(round, choices);
        tallyDue(round);
        requireState(round, State.Tallied);
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        settleAll(round);
        requireState(round, State.Settled);
    }

    /// An event that named an amount after the storage behind it was deleted, so that every exit was logged as zero.
    function test_withdrawalLogsTheAmountThatWasWithdrawn() public {
        address owner = ownerNamed("worker", 0);
        vm.prank(owner);
        registry.retire(workers[0]);
        pass(UNBONDING);
        vm.expectEmit(address(registry));
        emit IRegistry.BondWithdrawn(workers[0], owner, 8 * BOND_PER_JOB);
        vm.prank(owner);
        registry.withdraw(workers[0]);
        vm.assertEq(token.balanceOf(owner), 8 * BOND_PER_JOB);
    }

    function test_endOfARoundLogsTheReserveThatWasReleased() public {
        uint256 round = openRound(fourEach());
        uint128 reserved = rounds.roundOf(round).reserved;
        vm.assertEq(reserved, 8 * SHARE + 6 * JUROR_FEE);
        pass(601);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundVoided(round, reserved);
        rounds.close(round, fourEach());
        vm.assertEq(rounds.roundOf(round).reserved, 0);
    }

    /// A work key belonged to its first sender: an account that saw it in the mempool could claim it.
    function test_claimCopiedFromTheMempoolTakesNobodysWork() public {
        uint256 round = openRound(fourEach());
        Submission memory seen = submission(round, workers[0], leavesOf(0, 4, UNITS));
        Submission memory thief = submission(round, workers[1], seen.leaves);
        bytes memory assignments = fourEach();
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.NotAssigned));
        rounds.submit(round, assignments, packed(one(thief)));
        Submission memory renamed = submission(round, workers[0], seen.leaves);
        renamed.signature = thief.signature;
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NothingTaken.selector, Refusal.BadSignature));
        rounds.submit(round, assignments, packed(one(renamed)));
        // The very bytes, sent by the thief first, are the honest worker's claim all the same.
        vm.prank(stranger);
        rounds.submit(round, fourEach(), packed(one(seen)));
        vm.assertEq(rounds.roundOf(round).submitted, 15);
    }

    /// The party that decided on a slash received it.
    function test_jurorsThatFindFraudEarnNoMoreThanJurorsThatAccept() public {
        uint256 accepted = judged(Choice.Accept);
        uint32[] memory lenient = jurorsOf(accepted);
        settleAll(accepted);
        uint256 before = credits.balanceOf(registry.ownerOf(lenient[0]));
        uint256 round = drawnRound(UNITS);
        uint256[9] memory earned = _earnings();
        voteAll(round, 0, 255);
        tallyDue(round);
        settleAll(round);
        vm.assertEq(before, JUROR_FEE);
        vm.assertEq(registry.treasuryBalance(), 8 * FRAUD_SLASH);
        uint256[9] memory after_ = _earnings();
        for (uint256 i; i < 9; ++i) {
            vm.assertLe(after_[i] - earned[i], JUROR_FEE, "no more than the fee");
            vm.assertEq(token.balanceOf(ownerNamed("validator", i)), 0);
        }
    }

    function _earnings() private view returns (uint256[9] memory earned) {
        for (uint256 i; i < 9; ++i) {
            earned[i] = credits.balanceOf(ownerNamed("validator", i));
        }
    }

    /// Unjudged work was paid once the refusal window was over.
    function testFuzz_workNobodyJudgedIsNeverPaid(uint256 passed) public {
        passed = bound(passed, 301, 365 days);
        uint256 round = closedRound(UNITS);
        bytes memory batch = batchOf(round);
        bytes memory assignments = fourEach();
        vm.warp(block.timestamp + passed);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Closed));
        rounds.settle(round, 0, assignments, batch);
        rounds.draw(round);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Void));
        rounds.settle(round, 0, assignments, batch);
        rounds.free(round, assignments);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 0);
        vm.assertEq(market.runOf(run).escrow, ESCROW);
    }

    /// A list from which one was removed by moving the last into its place: indices held from before then meant another.
    function testFuzz_validatorsKeepTheirPlacesWhoeverLeaves(uint16 leaving) public {
        leaving &= 0x1ff;
        for (uint256 i; i < 9; ++i) {
            if ((leaving >> i) & 1 == 0) continue;
            vm.prank(ownerNamed("validator", i));
            registry.retire(validators[i]);
        }
        vm.assertEq(registry.eligible(), 0x1ff & ~uint256(leaving));
        pass(UNBONDING);
        for (uint256 i; i < 9; ++i) {
            if ((leaving >> i) & 1 == 0) continue;
            vm.prank(ownerNamed("validator", i));
            registry.withdraw(validators[i]);
        }
        for (uint256 i; i < 9; ++i) {
            vm.assertEq(registry.nodeAt(uint8(i)), (leaving >> i) & 1 == 1 ? 0 : validators[i]);
        }
        vm.assertEq(registry.slotCount(), 9);
    }

    /// Accepted work left no trace on chain: earnings could not be derived from events.
    function test_creditsOfEveryOwnerAreRebuiltFromEventsAlone() public {
        vm.recordLogs();
        buy(stranger, 12_345);
        vm.prank(stranger);
        credits.redeem(345);
        uint256 round = judged(Choice.Fraud);
        tried(appealed(round), Choice.Accept);
        settleAll(round);
        uint256 upheld = _appealUpheld();
        requireState(upheld, State.Settled);
        vm.startPrank(requester);
        market.close(run);
        market.refund(run, market.runOf(run).escrow);
        vm.stopPrank();
        // The state before the first event considered.
        _rebuilt[appellant] = 10 * uint256(DEPOSIT);
        (_supply, _locked) = (2 * ESCROW + 10 * uint256(DEPOSIT), 2 * ESCROW);
        _replay(vm.getRecordedLogs());
        vm.assertEq(_supply, credits.totalSupply(), "supply");
        vm.assertEq(_locked, credits.totalLocked(), "locked");
        _requireRebuilt(appellant);
        _requireRebuilt(requester);
        _requireRebuilt(stranger);
        _requireRebuilt(treasury);
        for (uint256 i; i < 9; ++i) {
            _requireRebuilt(ownerNamed("validator", i));
            _requireRebuilt(ownerNamed("worker", i));
        }
    }

    function _appealUpheld() private returns (uint256 round) {
        for (uint256 i; i < 9; ++i) {
            give(stranger, OVERTURN_PENALTY, address(registry));
            vm.prank(stranger);
            registry.topUp(validators[i], OVERTURN_PENALTY);
        }
        round = judged(Choice.Fraud);
        tried(appealed(round), Choice.Fraud);
        settleAll(round);
    }

    function _requireRebuilt(address owner) private view {
        vm.assertEq(_rebuilt[owner], credits.balanceOf(owner), "rebuilt");
    }

    function _replay(Log[] memory logs) private {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter != address(credits)) continue;
            _apply(logs[i].topics[0], address(uint160(uint256(logs[i].topics[1]))), logs[i].data);
        }
    }

    function _apply(bytes32 kind, address owner, bytes memory data) private {
        if (kind == ICredits.CreditsEarned.selector) {
            (, uint256 earned) = abi.decode(data, (uint32, uint256));
            (_rebuilt[owner], _locked) = (_rebuilt[owner] + earned, _locked - earned);
            return;
        }
        uint256 amount = abi.decode(data, (uint256));
        if (kind == ICredits.CreditsBought.selector || kind == ICredits.CreditsGranted.selector) {
            (_rebuilt[owner], _supply) = (_rebuilt[owner] + amount, _supply + amount);
        } else if (kind == ICredits.CreditsRedeemed.selector) {
            (_rebuilt[owner], _supply) = (_rebuilt[owner] - amount, _supply - amount);
        } else if (kind == ICredits.CreditsLocked.selector) {
            (_rebuilt[owner], _locked) = (_rebuilt[owner] - amount, _locked + amount);
        } else {
            vm.assertEq(kind, ICredits.CreditsUnlocked.selector);
            (_rebuilt[owner], _locked) = (_rebuilt[owner] + amount, _locked - amount);
        }
    }
}
