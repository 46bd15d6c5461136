// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket, MarketTerms, Run, RunTerms} from "../src/interfaces/IMarket.sol";
import {Market} from "../src/Market.sol";
import {Scenario} from "./Scenario.sol";

contract OpenRunTest is Scenario {
    function _refuse(RunTerms memory terms, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, field));
        market.open(terms, MANIFEST, "");
    }

    function test_anyoneOpensARun() public {
        RunTerms memory terms = runTerms();
        vm.expectEmit(address(market));
        emit IMarket.RunOpened(2, stranger, terms, MANIFEST, "uri");
        vm.prank(stranger);
        uint256 opened = market.open(terms, MANIFEST, "uri");
        Run memory stored = market.runOf(opened);
        vm.assertEq(stored.requester, stranger);
        vm.assertEq(stored.terms.rulesHash, RULES);
        vm.assertEq(market.manifestRootOf(opened, 0), MANIFEST);
        vm.assertEq(market.runCount(), 2);
    }

    function test_termsWithoutPartiesOrRulesAreRefused() public {
        RunTerms memory terms = runTerms();
        terms.coordinator = address(0);
        _refuse(terms, "coordinator");
        terms = runTerms();
        terms.trainer = address(0);
        _refuse(terms, "trainer");
        terms = runTerms();
        terms.rulesHash = 0;
        _refuse(terms, "rulesHash");
        terms = runTerms();
        terms.maxUnits = 0;
        _refuse(terms, "maxUnits");
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "manifestRoot"));
        market.open(runTerms(), 0, "");
    }

    function test_emptyWindowsAreRefused() public {
        RunTerms memory terms = runTerms();
        terms.workSeconds = 0;
        _refuse(terms, "workSeconds");
        terms = runTerms();
        terms.drawSeconds = 0;
        _refuse(terms, "drawSeconds");
        terms = runTerms();
        terms.commitSeconds = 0;
        _refuse(terms, "commitSeconds");
        terms = runTerms();
        terms.revealSeconds = 0;
        _refuse(terms, "revealSeconds");
    }

    function test_appealsComeWithAWindow() public {
        RunTerms memory terms = runTerms();
        terms.appealSeats = 5;
        _refuse(terms, "challengeSeconds");
        terms = runTerms();
        terms.challengeSeconds = 1;
        _refuse(terms, "challengeSeconds");
    }

    function testFuzz_committeeIsOddAndAtMostFifteen(uint8 committee) public {
        RunTerms memory terms = runTerms();
        terms.committee = committee;
        if (committee % 2 == 0 || committee > 15) _refuse(terms, "committee");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function testFuzz_roundEndsBeforeABondCanLeave(uint32 work, uint32 draw, uint32 commit, uint32 reveal) public {
        RunTerms memory terms = runTerms();
        terms.workSeconds = uint32(bound(work, 1, type(uint32).max));
        terms.drawSeconds = uint32(bound(draw, 1, type(uint32).max));
        terms.commitSeconds = uint32(bound(commit, MIN_COMMIT, type(uint32).max));
        terms.revealSeconds = uint32(bound(reveal, MIN_REVEAL, type(uint32).max));
        uint256 voting = uint256(terms.drawSeconds) + terms.commitSeconds + terms.revealSeconds;
        if (terms.workSeconds + 4 * voting > MAX_ROUND) _refuse(terms, "seconds");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function testFuzz_feesWhoseReserveCannotBeHeldAreRefused(uint128 fee) public {
        RunTerms memory terms = runTerms();
        terms.jurorFee = uint128(bound(fee, MIN_FEE, type(uint128).max));
        uint256 most = 256 * uint256(terms.maxUnits) * terms.pricePerUnit + 36 * uint256(terms.jurorFee);
        if (most > type(uint128).max) _refuse(terms, "jurorFee");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function _appealing(uint8 committee, uint8 seats) private view returns (RunTerms memory terms) {
        terms = runTerms();
        (terms.committee, terms.appealSeats, terms.challengeSeconds) = (committee, seats, 400);
    }

    function testFuzz_appealIsTriedByAnOddAndLargerCommittee(uint8 committee, uint8 seats) public {
        committee = uint8(bound(committee, 0, 7)) * 2 + 1;
        RunTerms memory terms = _appealing(committee, uint8(bound(seats, 1, 255)));
        seats = terms.appealSeats;
        bool fits = seats % 2 == 1 && seats >= committee + 2 && seats <= 15;
        if (fits) vm.assertEq(market.open(terms, MANIFEST, ""), 2);
        else _refuse(terms, "appealSeats");
    }

    function testFuzz_windowsAndFeesBelowTheProtocolsMinimumsAreRefused(uint32 commit, uint32 reveal, uint128 fee)
        public
    {
        RunTerms memory terms = runTerms();
        terms.commitSeconds = uint32(bound(commit, 0, 2 * MIN_COMMIT));
        terms.revealSeconds = uint32(bound(reveal, 0, 2 * MIN_REVEAL));
        terms.jurorFee = uint128(bound(fee, 0, 2 * MIN_FEE));
        if (terms.commitSeconds < MIN_COMMIT) _refuse(terms, "commitSeconds");
        else if (terms.revealSeconds < MIN_REVEAL) _refuse(terms, "revealSeconds");
        else if (terms.jurorFee < MIN_FEE) _refuse(terms, "jurorFee");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function test_minimumWindowsAreNotZero() public {
        MarketTerms memory terms = marketTerms();
        terms.minCommitSeconds = 0;
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "minCommitSeconds"));
        new Market(registry, credits, address(rounds), terms);
        (terms.minCommitSeconds, terms.minRevealSeconds) = (1, 0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "minRevealSeconds"));
        new Market(registry, credits, address(rounds), terms);
    }

    function testFuzz_jobNeverPaysMoreThanItsFraudCosts(uint64 units, uint128 price) public {
        RunTerms memory terms = runTerms();
        terms.maxUnits = uint64(bound(units, 1, type(uint64).max));
        terms.pricePerUnit = uint128(bound(price, 0, 2 * FRAUD_SLASH / terms.maxUnits + 1));
        if (uint256(terms.maxUnits) * terms.pricePerUnit > FRAUD_SLASH) _refuse(terms, "pricePerUnit");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function testFuzz_appealEndsWithinTheLongestRoundToo(uint32 work, uint32 challenge) public {
        RunTerms memory terms = _appealing(3, 5);
        terms.workSeconds = uint32(bound(work, 1, MAX_ROUND));
        terms.challengeSeconds = uint32(bound(challenge, 1, MAX_ROUND));
        uint256 voting = 4 * uint256(300 + 200 + 100);
        if (uint256(terms.workSeconds) + terms.challengeSeconds + 2 * voting > MAX_ROUND) _refuse(terms, "seconds");
        else vm.assertEq(market.open(terms, MANIFEST, ""), 2);
    }

    function testFuzz_longestRoundEndsBeforeABondCanLeave(uint40 longest) public {
        if (longest >= UNBONDING) {
            vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "maxRoundSeconds"));
        }
        MarketTerms memory terms = marketTerms();
        terms.maxRoundSeconds = longest;
        Market other = new Market(registry, credits, address(rounds), terms);
        if (longest < UNBONDING) vm.assertEq(other.terms().maxRoundSeconds, longest);
    }

    function test_unknownRunHasNoViews() public {
        vm.expectRevert(abi.encodeWithSelector(IMarket.UnknownRun.selector, 9));
        market.runOf(9);
    }
}
