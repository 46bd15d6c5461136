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

    function _named(Choice[] memory choices, Choice choice) private pure returns (bool) {
        return 2 * _votes(choices, choice) > choices.length;
    }

    function _verdict(Choice[] memory choices) private pure returns (Verdict) {
        if (_named(choices, Choice.Accept)) return Verdict.Accepted;
        if (_named(choices, Choice.Fraud)) return Verdict.Fraud;
        return _named(choices, Choice.Unavailable) ? Verdict.Unavailable : Verdict.Void;
    }

    function _siding(Verdict verdict) private pure returns (Choice) {
        if (verdict == Verdict.Accepted) return Choice.Accept;
        if (verdict == Verdict.Fraud) return Choice.Fraud;
        return verdict == Verdict.Void ? Choice.Void : Choice.Unavailable;
    }

    /// The verdict that an appeal's committee names by a majority of all its seats, if any.
    function _ruling(Choice[] memory second) private pure returns (bool decided, Verdict named) {
        named = _verdict(second);
        if (!_quorate(second)) return (false, named);
        if (_named(second, _siding(named))) return (true, named);
        uint256 refusing = _votes(second, Choice.Fraud) + _votes(second, Choice.Unavailable);
        return 2 * refusing > second.length ? (true, Verdict.Unavailable) : (false, named);
    }

    function _final(Verdict against, Choice[] memory second) private pure returns (Verdict) {
        (bool decided, Verdict named) = _ruling(second);
        if (!decided) return against == Verdict.Fraud ? Verdict.Void : against;
        if (named != Verdict.Unavailable) return named;
        return against == Verdict.Accepted ? Verdict.Unavailable : against;
    }

    /// Whether a juror of the first committee is contradicted by the appeal.
    function _fined(Choice cast, Choice[] memory second) private pure returns (bool) {
        (bool decided, Verdict named) = _ruling(second);
        if (!decided) return false;
        return (cast == Choice.Accept && named == Verdict.Fraud) || (cast == Choice.Fraud && named == Verdict.Accepted);
    }

    /// Expected bonds of the first committee after the appeal; returns the sum of the fines.
    function _requireBonds(uint256 round, Choice[] memory first, Choice[] memory second)
        private
        view
        returns (uint256 taken)
    {
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < jurors.length; ++i) {
            uint256 lost = first[i] == Choice.Absent ? ABSENCE_PENALTY : 0;
            if (_fined(first[i], second)) (lost, taken) = (lost + OVERTURN_PENALTY, taken + OVERTURN_PENALTY);
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
        uint256 appealRound = appealed(round);
        tried(appealRound, second);
        uint256 fees = _requireFees(appealRound, second);
        uint256 taken = _requireBonds(round, first, second);
        Verdict last = _final(_verdict(first), second);
        vm.assertEq(rounds.roundOf(round).accepted & 1, uint8(_accepts(last)), "accepted bit");
        vm.assertEq(rounds.roundOf(round).fraud & 1, uint8(_condemns(last)), "fraud bit");
        uint256 paid = last == Verdict.Accepted ? UNITS * PRICE : 0;
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), paid, "worker");
        uint256 bond = registry.nodeOf(workers[0]).bond;
        vm.assertEq(bond, 8 * BOND_PER_JOB - (last == Verdict.Fraud ? FRAUD_SLASH : 0), "worker's bond");
        _requireDeposit(before, fees, taken, _verdict(first), second);
        vm.assertEq(rounds.roundOf(appealRound).reserved, 0, "deposit gone");
        settleAll(round);
        requireEnded(round);
    }

    function _accepts(Verdict verdict) private pure returns (uint256) {
        return verdict == Verdict.Accepted || verdict == Verdict.Unavailable ? 1 : 0;
    }

    function _condemns(Verdict verdict) private pure returns (uint256) {
        return verdict == Verdict.Fraud || verdict == Verdict.Unavailable ? 1 : 0;
    }

    /// The fees of an appeal's committee. A committee without a quorum is drawn again; here nobody draws, so that the
    /// appeal ends at the draw's deadline.
    function _requireFees(uint256 appealRound, Choice[] memory second) private returns (uint256 fees) {
        if (_quorate(second)) {
            requireState(appealRound, State.Settled);
            Verdict named = _verdict(second);
            return named == Verdict.Unavailable ? 0 : _votes(second, _siding(named)) * JUROR_FEE;
        }
        requireState(appealRound, State.Closed);
        vm.warp(rounds.roundOf(appealRound).deadline + 1);
        rounds.draw(appealRound);
        requireState(appealRound, State.Void);
        return (SEATS - _votes(second, Choice.Abstain) - _votes(second, Choice.Absent)) * JUROR_FEE;
    }

    /// The appellant bears the fees that contradicted jurors do not, and loses its bond if confirmed by name.
    function _requireDeposit(uint256 before, uint256 fees, uint256 taken, Verdict against, Choice[] memory second)
        private
        view
    {
        (bool decided, Verdict named) = _ruling(second);
        bool overturned = decided && named != against;
        bool confirmed = decided && !overturned && against != Verdict.Unavailable;
        uint256 due = before - fees - (confirmed ? APPEAL_BOND : 0) + _awarded(fees, taken, overturned);
        vm.assertEq(credits.balanceOf(appellant), due, "appellant");
    }

    function _awarded(uint256 fees, uint256 taken, bool overturned) private pure returns (uint256) {
        uint256 repaid = fees < taken ? fees : taken;
        if (!overturned || taken == 0) return repaid;
        uint256 bounty = taken - repaid < (taken - 1) / 2 ? taken - repaid : (taken - 1) / 2;
        return repaid + (bounty < APPEAL_BOUNTY ? bounty : APPEAL_BOUNTY);
    }
}
