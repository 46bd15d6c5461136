// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

contract SweepTest is Scenario {
    function _slash(uint256 amount) private {
        vm.prank(address(rounds));
        registry.slash(workers[0], 1, Cause.Fraud, amount);
    }

    function testFuzz_anyoneSendsWhatWasSlashedToTheTreasuryAndNoMore(uint256 slashed) public {
        slashed = bound(slashed, 1, 8 * BOND_PER_JOB);
        _slash(slashed);
        vm.expectEmit(address(registry));
        emit IRegistry.TreasurySwept(treasury, slashed);
        vm.prank(stranger);
        vm.assertEq(registry.sweep(), slashed);
        vm.assertEq(token.balanceOf(treasury), slashed);
        vm.assertEq(registry.treasuryBalance(), 0);
        vm.assertEq(token.balanceOf(address(registry)), registry.totalBonded());
        vm.expectRevert(IRegistry.ZeroAmount.selector);
        registry.sweep();
    }

    /// Tokens sent here by mistake belong to no bond and are not taken for slashes.
    function test_strayTokensAreNotSwept() public {
        token.drip(address(registry), 77);
        vm.expectRevert(IRegistry.ZeroAmount.selector);
        registry.sweep();
    }

    function testFuzz_awardTurnsSlashesIntoBackedCredits(uint256 slashed, uint256 awarded) public {
        slashed = bound(slashed, 1, 8 * BOND_PER_JOB);
        awarded = bound(awarded, 1, slashed);
        _slash(slashed);
        vm.expectEmit(address(registry));
        emit IRegistry.SlashesAwarded(stranger, 3, awarded);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsGranted(stranger, 3, awarded);
        vm.prank(address(rounds));
        registry.award(stranger, 3, awarded);
        vm.assertEq(credits.balanceOf(stranger), awarded);
        vm.assertEq(token.balanceOf(address(credits)), credits.totalSupply());
        vm.assertEq(registry.treasuryBalance(), slashed - awarded);
        vm.prank(stranger);
        credits.redeem(awarded);
        vm.assertEq(token.balanceOf(stranger), awarded);
    }

    function test_awardTakesNoBond() public {
        _slash(5);
        vm.expectRevert();
        vm.prank(address(rounds));
        registry.award(stranger, 3, 6);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotRounds.selector, stranger));
        vm.prank(stranger);
        registry.award(stranger, 3, 5);
    }

    function test_creditsAreGrantedByTheRegistryAndOnlyWithTheirTokens() public {
        vm.expectRevert(abi.encodeWithSelector(ICredits.NotRegistry.selector, stranger));
        vm.prank(stranger);
        credits.grant(stranger, 1, 1);
        uint256 held = token.balanceOf(address(credits));
        vm.expectRevert(abi.encodeWithSelector(ICredits.NotBacked.selector, held, held + 1));
        vm.prank(address(registry));
        credits.grant(stranger, 1, 1);
    }
}
