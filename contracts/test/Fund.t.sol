// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {IMarket} from "../src/interfaces/IMarket.sol";
import {Scenario} from "./Scenario.sol";

contract FundTest is Scenario {
    function testFuzz_fundingLocksCredits(uint128 amount) public {
        amount = uint128(bound(amount, 1, token.FAUCET_CAP() - ESCROW));
        buy(requester, amount);
        uint256 locked = credits.totalLocked();
        vm.expectEmit(address(market));
        emit IMarket.RunFunded(run, requester, amount, ESCROW + amount);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsLocked(requester, run, amount);
        vm.prank(requester);
        market.fund(run, amount);
        vm.assertEq(market.runOf(run).escrow, ESCROW + amount);
        vm.assertEq(credits.totalLocked(), locked + amount);
        vm.assertEq(credits.balanceOf(requester), 0);
    }

    function test_fundingNeedsCreditsAndTheRequester() public {
        vm.expectRevert(abi.encodeWithSelector(ICredits.CreditTooSmall.selector, requester, 0, 1));
        vm.prank(requester);
        market.fund(run, 1);
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotRequester.selector, run, requester, stranger));
        vm.prank(stranger);
        market.fund(run, 1);
        vm.expectRevert(IMarket.ZeroAmount.selector);
        vm.prank(requester);
        market.fund(run, 0);
    }

    function test_closedRunTakesNoFunds() public {
        vm.expectEmit(address(market));
        emit IMarket.RunClosed(run, requester);
        vm.startPrank(requester);
        market.close(run);
        vm.expectRevert(abi.encodeWithSelector(IMarket.RunIsClosed.selector, run));
        market.fund(run, 1);
        vm.expectRevert(abi.encodeWithSelector(IMarket.RunIsClosed.selector, run));
        market.close(run);
        vm.stopPrank();
    }

    function testFuzz_refundReturnsWhatIsNotReserved(uint128 amount) public {
        openRound(fourEach());
        uint128 escrow = market.runOf(run).escrow;
        uint128 reserved = market.runOf(run).reserved;
        vm.assertEq(escrow + reserved, ESCROW);
        amount = uint128(bound(amount, 1, escrow));
        vm.startPrank(requester);
        vm.expectRevert(abi.encodeWithSelector(IMarket.RunNotClosed.selector, run));
        market.refund(run, amount);
        market.close(run);
        vm.expectRevert(IMarket.ZeroAmount.selector);
        market.refund(run, 0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.EscrowTooSmall.selector, run, escrow, escrow + 1));
        market.refund(run, escrow + 1);
        vm.expectEmit(address(market));
        emit IMarket.RunRefunded(run, requester, amount, escrow - amount);
        vm.expectEmit(address(credits));
        emit ICredits.CreditsUnlocked(requester, run, amount);
        market.refund(run, amount);
        vm.stopPrank();
        vm.assertEq(credits.balanceOf(requester), amount);
    }

    function test_onlyTheRequesterClosesAndRefunds() public {
        bytes memory refusal = abi.encodeWithSelector(IMarket.NotRequester.selector, run, requester, stranger);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        market.close(run);
        vm.expectRevert(refusal);
        market.refund(run, 1);
        vm.stopPrank();
    }

    function test_onlyRoundsMovesEscrow() public {
        bytes memory refusal = abi.encodeWithSelector(IMarket.NotRounds.selector, address(this));
        vm.expectRevert(refusal);
        market.reserve(run, 1, 1);
        vm.expectRevert(refusal);
        market.release(run, 1, 1);
        vm.expectRevert(refusal);
        market.pay(run, 1, 1, stranger, 1);
        vm.expectRevert(refusal);
        market.deposit(run, 1, stranger, 1);
        vm.expectRevert(refusal);
        market.payOut(run, 1, stranger, 1);
    }
}
