// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {State, Verdict} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title For any votes, verdicts are majorities, and every credit and bond is accounted for
contract AppealVotesTest is Appeals {
    function _votes(Choice[] memory choices, Choice choice) private pure returns (uint256 votes) {
        for (uint256 i; i < choices.length; ++i) {
            if (choices[i] == choice) ++votes;
        }
    }

    function _quorate(Choice[] memory choices) private pure returns (bool) {
        return 2 * (_votes(choices, Choice.Abstain) + _votes(choices, Choice.Absent)) < choices.length;
    }

    function _verdict(Choice[] memory choices) private pure returns (Verdict) {
        if (2 * _votes(choices, Choice.Accept) > choices.length) return Verdict.Accepted;
        return 2 * _votes(choices, Choice.Fraud) > choices.length ? Verdict.Fraud : Verdict.Void;
    }

    function _siding(Verdict verdict) private pure returns (Choice) {
        if (verdict == Verdict.Accepted) return Choice.Accept;
        return verdict == Verdict.Fraud ? Choice.Fraud : Choice.Void;
    }

    /// Expected bonds of the first committee after the appeal's verdict `last`.
    function _requireBonds(uint256 round, Choice[] memory first, Verdict against, bool overturned) private view {
        uint32[] memory jurors = jurorsOf(round);
        Choice siding = _siding(against);
        bool majority = 2 * _votes(first, siding) > first.length;
        for (uint256 i; i < jurors.length; ++i) {
            uint256 lost = first[i] == Choice.Absent ? ABSENCE_PENALTY : 0;
            if (overturned && majority && first[i] == siding) lost += OVERTURN_PENALTY;
            vm.assertEq(registry.nodeOf(jurors[i]).bond, VALIDATOR_BOND - lost, "juror's bond");
        }
    }

    function testFuzz_booksBalanceWhoeverVotesWhat(uint256 firstSeed, uint256 secondSeed) public {
        Choice[] memory first = revealed(firstSeed, 3);
        Choice[] memory second = revealed(secondSeed, SEATS);
        uint256 before = credits.balanceOf(appellant);
        uint256 round = drawnRound(UNITS);
        vote(round, first);
        tallyDue(round);
        if (!_quorate(first)) return requireState(round, State.Closed);
        Verdict against = _verdict(first);
        uint256 appealRound = appealed(round);
        tried(appealRound, second);
        if (!_quorate(second)) {
            requireState(appealRound, State.Closed);
            vm.warp(rounds.roundOf(appealRound).deadline + 1);
            rounds.draw(appealRound);
            requireState(appealRound, State.Void);
            _requireBonds(round, first, against, false);
            vm.assertEq(credits.balanceOf(appellant), before, "deposit back");
        } else {
            _requireDecided(round, appealRound, second, against, before);
            _requireBonds(round, first, against, _verdict(second) != against);
        }
        vm.assertEq(rounds.roundOf(appealRound).reserved, 0, "deposit gone");
        settleAll(round);
        requireEnded(round);
    }

    function _requireDecided(
        uint256 round,
        uint256 appealRound,
        Choice[] memory second,
        Verdict against,
        uint256 before
    ) private view {
        requireState(appealRound, State.Settled);
        Verdict last = _verdict(second);
        vm.assertEq(rounds.roundOf(round).accepted & 1, last == Verdict.Accepted ? 1 : 0, "accepted");
        vm.assertEq(rounds.roundOf(round).fraud & 1, last == Verdict.Fraud ? 1 : 0, "fraud");
        uint256 fees = _votes(second, _siding(last)) * JUROR_FEE;
        uint256 paid = last == Verdict.Accepted ? UNITS * PRICE : 0;
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), paid, "worker");
        if (last == against) {
            vm.assertEq(credits.balanceOf(appellant), before - APPEAL_BOND - fees, "appellant");
        } else {
            vm.assertTrue(credits.balanceOf(appellant) >= before, "appellant is whole");
            vm.assertLe(credits.balanceOf(appellant), before + APPEAL_BOUNTY);
        }
    }
}
