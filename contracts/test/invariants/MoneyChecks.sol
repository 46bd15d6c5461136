// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Run} from "../../src/interfaces/IMarket.sol";
import {Round} from "../../src/interfaces/IRounds.sol";
import {Checks} from "./Checks.sol";

/// @title MoneyChecks: every token and every credit, at any moment
abstract contract MoneyChecks is Checks {
    function checkMoney() internal view {
        everyTokenIsSomewhere();
        creditsAreFullyBacked();
        creditsAddUp();
        whatIsLockedIsEscrowAndReserves();
        aRunsReserveIsItsRounds();
        theRegistryHoldsBondsAndSlashes();
        eventsTellEveryCredit();
        eventsTellEveryEscrow();
        payIsUnitsByPriceToTheOwner();
        bountiesAreUnderHalf();
        depositsCoverAppeals();
    }

    /// No token is made or lost by any contract: M of the fault list.
    function everyTokenIsSomewhere() internal view {
        uint256 held = token.balanceOf(address(registry)) + token.balanceOf(address(credits));
        held += token.balanceOf(address(market)) + token.balanceOf(address(rounds));
        address[] memory people = parties.everybody();
        for (uint256 i; i < people.length; ++i) {
            held += token.balanceOf(people[i]);
        }
        vm.assertEq(held, token.totalSupply(), "every token is somewhere");
    }

    function creditsAreFullyBacked() internal view {
        uint256 backing = credits.totalSupply() + parties.donatedToCredits();
        vm.assertEq(token.balanceOf(address(credits)), backing, "credits are backed one to one");
    }

    function creditsAddUp() internal view {
        uint256 held = credits.totalLocked();
        address[] memory people = parties.everybody();
        for (uint256 i; i < people.length; ++i) {
            held += credits.balanceOf(people[i]);
        }
        vm.assertEq(held, credits.totalSupply(), "credits add up");
    }

    /// Escrow is unsigned: an underflow would show here.
    function whatIsLockedIsEscrowAndReserves() internal view {
        uint256 sum;
        for (uint256 run = 1; run <= market.runCount(); ++run) {
            Run memory stored = market.runOf(run);
            sum += uint256(stored.escrow) + stored.reserved;
        }
        vm.assertEq(sum, credits.totalLocked(), "escrow and reserves are what is locked");
    }

    function aRunsReserveIsItsRounds() internal view {
        uint256[] memory sums = new uint256[](market.runCount() + 1);
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            Round memory stored = rounds.roundOf(round);
            sums[stored.run] += stored.reserved;
            vm.assertTrue(chronicle.reservedOf(round) == int256(uint256(stored.reserved)), "events tell each reserve");
        }
        for (uint256 run = 1; run < sums.length; ++run) {
            vm.assertEq(market.runOf(run).reserved, sums[run], "a run's reserve is its rounds'");
        }
    }

    function theRegistryHoldsBondsAndSlashes() internal view {
        uint256 owed = registry.totalBonded() + registry.treasuryBalance() + parties.donatedToRegistry();
        vm.assertEq(token.balanceOf(address(registry)), owed, "the registry holds bonds and slashes");
        vm.assertEq(registry.treasuryBalance(), chronicle.pot(), "events tell what was slashed");
    }

    function eventsTellEveryCredit() internal view {
        vm.assertEq(credits.totalSupply(), chronicle.supply(), "events tell the supply");
        vm.assertEq(credits.totalLocked(), chronicle.locked(), "events tell what is locked");
        address[] memory people = parties.everybody();
        for (uint256 i; i < people.length; ++i) {
            vm.assertEq(credits.balanceOf(people[i]), chronicle.creditsOf(people[i]), "events tell each balance");
        }
    }

    function eventsTellEveryEscrow() internal view {
        for (uint256 run = 1; run <= market.runCount(); ++run) {
            Run memory stored = market.runOf(run);
            vm.assertEq(stored.escrow, chronicle.escrowOf(run), "events tell each escrow");
            vm.assertEq(stored.reserved, chronicle.reservedOfRun(run), "events tell each run's reserve");
            vm.assertEq(stored.version, chronicle.versionOf(run), "events tell each version");
        }
        _never("versions rise");
    }

    function payIsUnitsByPriceToTheOwner() internal view {
        _never("pay is units by price");
        _never("only accepted work is paid");
        _never("earned by the node's owner");
        _never("a fee is at most the fee");
    }

    function bountiesAreUnderHalf() internal view {
        _never("a bounty is under half");
        _never("a bounty is under its cap");
    }

    function depositsCoverAppeals() internal view {
        _never("a deposit covers bond and fees");
    }
}
