// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {Credits} from "../src/Credits.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {ExactTransfer} from "../src/libraries/ExactTransfer.sol";
import {Scenario} from "./Scenario.sol";

/// A token that keeps one per cent of every transfer.
contract TaxedToken is ERC20("Taxed", "TAX") {
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (from != address(0) && to != address(0)) super._update(to, address(0), amount / 100);
    }
}

contract CreditsTest is Scenario {
    function testFuzz_creditsAreBoughtAndRedeemedOneToOne(uint256 bought, uint256 redeemed, address to) public {
        vm.assume(to != address(0) && to != address(credits) && to != address(this));
        bought = bound(bought, 1, token.FAUCET_CAP());
        redeemed = bound(redeemed, 1, bought);
        give(stranger, bought, address(credits));
        uint256 supply = credits.totalSupply();
        vm.startPrank(stranger);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsBought(stranger, bought);
        credits.buy(bought);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsRedeemed(stranger, to, redeemed);
        if (to == stranger) credits.redeem(redeemed);
        else credits.redeemTo(to, redeemed);
        vm.stopPrank();
        vm.assertEq(credits.balanceOf(stranger), bought - redeemed);
        vm.assertEq(token.balanceOf(to), redeemed);
        vm.assertEq(credits.totalSupply(), supply + bought - redeemed);
        vm.assertEq(token.balanceOf(address(credits)), credits.totalSupply());
    }

    function testFuzz_nobodyRedeemsMoreThanItHas(uint256 have, uint256 asked) public {
        have = bound(have, 1, token.FAUCET_CAP());
        asked = bound(asked, have + 1, type(uint256).max);
        buy(stranger, have);
        vm.expectRevert(abi.encodeWithSelector(ICredits.CreditTooSmall.selector, stranger, have, asked));
        vm.prank(stranger);
        credits.redeem(asked);
    }

    function test_whatIsRedeemedWithoutAReceiverGoesToTheOwner() public {
        buy(stranger, 5);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsRedeemed(stranger, stranger, 5);
        vm.prank(stranger);
        credits.redeem(5);
        vm.assertEq(token.balanceOf(stranger), 5);
    }

    function test_nobodyRedeemsToNobodyOrWhatAnotherHas() public {
        buy(stranger, 5);
        vm.expectRevert(ICredits.NoReceiver.selector);
        vm.prank(stranger);
        credits.redeemTo(address(0), 5);
        vm.expectRevert(abi.encodeWithSelector(ICredits.CreditTooSmall.selector, address(this), 0, 5));
        credits.redeemTo(stranger, 5);
    }

    function test_nothingIsRefused() public {
        vm.expectRevert(ICredits.ZeroAmount.selector);
        credits.buy(0);
        vm.expectRevert(ICredits.ZeroAmount.selector);
        credits.redeem(0);
    }

    function test_onlyTheMarketMovesCredits() public {
        bytes memory refusal = abi.encodeWithSelector(ICredits.NotMarket.selector, address(this));
        vm.expectRevert(refusal);
        credits.lock(stranger, 1, 1);
        vm.expectRevert(refusal);
        credits.unlock(stranger, 1, 1);
        vm.expectRevert(refusal);
        credits.earn(stranger, 1, 1, 1, 1);
    }

    function test_tokenThatKeepsAPartIsRefused() public {
        TaxedToken taxed = new TaxedToken();
        Credits others = new Credits(taxed, address(market), registry);
        taxed.mint(stranger, 1000);
        vm.startPrank(stranger);
        taxed.approve(address(others), 1000);
        vm.expectRevert(abi.encodeWithSelector(ExactTransfer.AmountNotKept.selector, 1000, 990));
        others.buy(1000);
        vm.stopPrank();
    }
}
