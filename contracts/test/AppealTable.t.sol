// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Verdict} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Every cell of the table of appeals: first verdict, appeal's votes, final verdict and who pays
contract AppealTableTest is Appeals {
    uint256 private _before;

    /// The verdict of the first committee, all of whose three seats vote alike.
    function _first(Choice choice) private returns (uint256 round) {
        _before = credits.balanceOf(appellant);
        return judged(choice);
    }

    function _require(uint256 round, Verdict last, uint256 fined, bool forfeited) private {
        bool both = last == Verdict.Unavailable;
        vm.assertEq(rounds.roundOf(round).accepted & 1, both || last == Verdict.Accepted ? 1 : 0, "accepted bit");
        vm.assertEq(rounds.roundOf(round).fraud & 1, both || last == Verdict.Fraud ? 1 : 0, "fraud bit");
        for (uint256 seat; seat < 3; ++seat) {
            uint256 bond = registry.nodeOf(jurorsOf(round)[seat]).bond;
            vm.assertEq(bond, VALIDATOR_BOND - (fined == 0 ? 0 : OVERTURN_PENALTY), "juror's bond");
        }
        uint256 slash = last == Verdict.Fraud ? FRAUD_SLASH : 0;
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - slash, "worker's bond");
        uint256 paid = last == Verdict.Accepted ? UNITS * PRICE : 0;
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), paid, "worker's pay");
        vm.assertEq(credits.balanceOf(treasury), forfeited ? APPEAL_BOND : 0, "forfeited");
        if (fined != 0) vm.assertEq(credits.balanceOf(appellant), _before + APPEAL_BOUNTY, "bounty");
        else vm.assertLe(credits.balanceOf(appellant), _before, "no gain");
        settleAll(round);
        requireEnded(round);
    }

    /// One case: every seat of the appeal votes `second`.
    function _cell(Choice first, Choice second, Verdict last, uint256 fined, bool forfeited) private {
        uint256 round = _first(first);
        tried(appealed(round), second);
        _require(round, last, fined, forfeited);
    }

    /// The votes of an appeal that names nothing by a majority: two accept, and fraud with unavailable are two.
    function _split(Choice first, Verdict last) private {
        uint256 round = _first(first);
        Choice[] memory votes = all(SEATS, Choice.Accept);
        (votes[0], votes[1], votes[2]) = (Choice.Fraud, Choice.Void, Choice.Unavailable);
        tried(appealed(round), votes);
        _require(round, last, 0, false);
    }

    function _neverDrawn(Choice first, Verdict last) private {
        uint256 round = _first(first);
        uint256 appealRound = appealed(round);
        vm.warp(rounds.roundOf(appealRound).deadline + 1);
        rounds.draw(appealRound);
        _require(round, last, 0, false);
    }

    function test_fraudThatAnAppealAcceptsIsAccepted() public {
        _cell(Choice.Fraud, Choice.Accept, Verdict.Accepted, 3, false);
    }

    function test_fraudThatAnAppealConfirmsStaysFraud() public {
        _cell(Choice.Fraud, Choice.Fraud, Verdict.Fraud, 0, true);
    }

    function test_fraudThatAnAppealVoidsIsVoid() public {
        _cell(Choice.Fraud, Choice.Void, Verdict.Void, 0, false);
    }

    function test_fraudStaysFraudIfItsFileIsHiddenFromTheAppeal() public {
        _cell(Choice.Fraud, Choice.Unavailable, Verdict.Fraud, 0, false);
    }

    /// Whoever has the run's stores shows the file to fewer than a majority of the appeal's seats.
    function test_fraudStaysFraudIfItsFileIsShownToAPartOfTheAppeal() public {
        uint256 round = _first(Choice.Fraud);
        Choice[] memory votes = all(SEATS, Choice.Fraud);
        (votes[0], votes[1], votes[2]) = (Choice.Accept, Choice.Unavailable, Choice.Unavailable);
        tried(appealed(round), votes);
        _require(round, Verdict.Fraud, 0, false);
    }

    function test_fraudThatAnAppealDoesNotDecideIsVoid() public {
        _split(Choice.Fraud, Verdict.Void);
    }

    function test_fraudWhoseAppealIsNeverDrawnIsVoid() public {
        _neverDrawn(Choice.Fraud, Verdict.Void);
    }

    function test_voidThatAnAppealAcceptsIsAccepted() public {
        _cell(Choice.Void, Choice.Accept, Verdict.Accepted, 0, false);
    }

    function test_voidThatAnAppealCondemnsIsFraud() public {
        _cell(Choice.Void, Choice.Fraud, Verdict.Fraud, 0, false);
    }

    function test_voidThatAnAppealConfirmsStaysVoid() public {
        _cell(Choice.Void, Choice.Void, Verdict.Void, 0, true);
    }

    function test_voidStaysVoidIfItsFileIsHiddenFromTheAppeal() public {
        _cell(Choice.Void, Choice.Unavailable, Verdict.Void, 0, false);
    }

    function test_voidThatAnAppealDoesNotDecideStaysVoid() public {
        _split(Choice.Void, Verdict.Void);
    }

    function test_acceptanceThatAnAppealConfirmsStays() public {
        _cell(Choice.Accept, Choice.Accept, Verdict.Accepted, 0, true);
    }

    function test_acceptanceThatAnAppealCondemnsIsFraud() public {
        _cell(Choice.Accept, Choice.Fraud, Verdict.Fraud, 3, false);
    }

    function test_acceptanceThatAnAppealVoidsIsVoid() public {
        _cell(Choice.Accept, Choice.Void, Verdict.Void, 0, false);
    }

    function test_acceptanceIsUnavailableIfItsFileIsHiddenFromTheAppeal() public {
        _cell(Choice.Accept, Choice.Unavailable, Verdict.Unavailable, 0, false);
    }

    function test_acceptanceThatAnAppealDoesNotDecideStays() public {
        _split(Choice.Accept, Verdict.Accepted);
    }

    function test_acceptanceWhoseAppealIsNeverDrawnStays() public {
        _neverDrawn(Choice.Accept, Verdict.Accepted);
    }

    function test_unavailableThatAnAppealAcceptsIsAcceptedAndFinesNobody() public {
        _cell(Choice.Unavailable, Choice.Accept, Verdict.Accepted, 0, false);
    }

    function test_unavailableThatAnAppealCondemnsIsFraudAndFinesNobody() public {
        _cell(Choice.Unavailable, Choice.Fraud, Verdict.Fraud, 0, false);
    }

    function test_unavailableThatAnAppealVoidsIsVoidAndFinesNobody() public {
        _cell(Choice.Unavailable, Choice.Void, Verdict.Void, 0, false);
    }

    function test_unavailableThatAnAppealCannotReadEitherStays() public {
        _cell(Choice.Unavailable, Choice.Unavailable, Verdict.Unavailable, 0, false);
    }

    function test_unavailableThatAnAppealDoesNotDecideStays() public {
        _split(Choice.Unavailable, Verdict.Unavailable);
    }
}
