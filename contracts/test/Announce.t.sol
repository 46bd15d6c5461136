// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption, IMarket, RunTerms} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract AnnounceTest is Scenario {
    bytes32 internal constant NEXT = keccak256("next rules");

    function _next() private view returns (RunTerms memory terms) {
        terms = runTerms();
        terms.rulesHash = NEXT;
        terms.pricePerUnit = 5 * PRICE;
    }

    function _announce(RunTerms memory terms) private {
        vm.prank(requester);
        market.announce(run, terms);
    }

    function _refuse(RunTerms memory terms, bytes memory error) private {
        vm.expectRevert(error);
        vm.prank(requester);
        market.announce(run, terms);
    }

    function testFuzz_newTermsCountAfterNoticeAndNotBefore(uint256 early) public {
        early = bound(early, 1, NOTICE);
        uint40 at = uint40(block.timestamp) + NOTICE;
        RunTerms memory terms = _next();
        vm.expectEmit(address(market));
        emit IMarket.TermsAnnounced(run, requester, terms, at);
        _announce(terms);
        (RunTerms memory announced, uint40 effectiveAt) = market.announcedOf(run);
        vm.assertEq(announced.rulesHash, NEXT);
        vm.assertEq(effectiveAt, at);
        vm.warp(at - early);
        vm.assertEq(market.runOf(run).terms.pricePerUnit, PRICE);
        vm.assertEq(market.runOf(run).terms.rulesHash, RULES);
        vm.warp(at);
        vm.assertEq(market.runOf(run).terms.pricePerUnit, 5 * PRICE);
        vm.assertEq(market.runOf(run).terms.rulesHash, NEXT);
    }

    function test_runWithoutAnnouncementHasNone() public {
        (RunTerms memory terms, uint40 effectiveAt) = market.announcedOf(run);
        vm.assertEq(terms.rulesHash, bytes32(0));
        vm.assertEq(effectiveAt, 0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.UnknownRun.selector, 9));
        market.announcedOf(9);
    }

    /// Nodes consent to rules: a node works under new ones only after joining at them.
    function test_everyNodeJoinsAgain() public {
        _announce(_next());
        vm.expectRevert(abi.encodeWithSelector(IMarket.WrongRules.selector, NEXT, RULES));
        vm.prank(ownerNamed("worker", 0));
        market.join(run, workers[0], NEXT);
        openRound(listing(workers[0], 1));
        for (uint256 i; i < 3; ++i) {
            vm.prank(ownerNamed("validator", i));
            market.join(run, validators[i], NEXT);
        }
        pass(NOTICE);
        bytes memory assignments = listing(workers[0], 1);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotJoined.selector, run, workers[0]));
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
        vm.expectRevert(abi.encodeWithSelector(IMarket.WrongRules.selector, RULES, NEXT));
        vm.prank(ownerNamed("worker", 0));
        market.join(run, workers[0], RULES);
        vm.prank(ownerNamed("worker", 0));
        market.join(run, workers[0], NEXT);
        openRound(assignments);
    }

    function test_openRoundKeepsTheTermsItWasOpenedWith() public {
        _announce(_next());
        pass(NOTICE - 300);
        uint256 round = submittedRound(10);
        pass(300);
        vm.assertEq(market.runOf(run).terms.pricePerUnit, 5 * PRICE);
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        voteAll(round, 255, 0);
        tallyDue(round);
        settleRound(round, 10);
        requireState(round, State.Settled);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 4 * 10 * PRICE);
    }

    function test_newTermsNameANewCoordinatorAndTrainer() public {
        RunTerms memory terms = _next();
        (terms.coordinator, terms.trainer) = (address(0xC01), address(0x74B));
        _announce(terms);
        pass(NOTICE);
        Consumption[] memory none = new Consumption[](0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotTrainer.selector, run, address(0x74B), trainer));
        vm.prank(trainer);
        market.publish(run, 1, MANIFEST, none);
        vm.prank(address(0x74B));
        market.publish(run, 1, MANIFEST, none);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotCoordinator.selector, address(0xC01), coordinator));
        vm.prank(coordinator);
        rounds.open(run, 1, 0, "");
    }

    /// A hash once used could have nodes joined at it from before: neither the first, nor one announced and replaced, returns.
    function test_rulesAreNeverUsedTwice() public {
        _refuse(runTerms(), abi.encodeWithSelector(IMarket.RulesUsedBefore.selector, run, RULES));
        _announce(_next());
        _refuse(_next(), abi.encodeWithSelector(IMarket.RulesUsedBefore.selector, run, NEXT));
        pass(NOTICE);
        _refuse(runTerms(), abi.encodeWithSelector(IMarket.RulesUsedBefore.selector, run, RULES));
        RunTerms memory third = _next();
        third.rulesHash = keccak256("third rules");
        _announce(third);
        _refuse(_next(), abi.encodeWithSelector(IMarket.RulesUsedBefore.selector, run, NEXT));
    }

    function testFuzz_latestAnnouncementReplacesOneNotYetInEffect(uint256 passed) public {
        passed = bound(passed, 0, NOTICE - 1);
        _announce(_next());
        vm.warp(block.timestamp + passed);
        RunTerms memory third = runTerms();
        (third.rulesHash, third.jurorFee) = (keccak256("third rules"), 77);
        _announce(third);
        vm.warp(block.timestamp + NOTICE - 1);
        vm.assertEq(market.runOf(run).terms.rulesHash, RULES);
        vm.warp(block.timestamp + 1);
        vm.assertEq(market.runOf(run).terms.rulesHash, third.rulesHash);
        vm.assertEq(market.runOf(run).terms.jurorFee, 77);
    }

    function test_termsInEffectStayUntilTheirSuccessorsCount() public {
        _announce(_next());
        pass(NOTICE);
        RunTerms memory third = runTerms();
        third.rulesHash = keccak256("third rules");
        _announce(third);
        vm.assertEq(market.runOf(run).terms.rulesHash, NEXT);
        pass(NOTICE);
        vm.assertEq(market.runOf(run).terms.rulesHash, third.rulesHash);
    }

    function test_onlyTheRequesterOfAnOpenRunAnnounces() public {
        RunTerms memory terms = _next();
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotRequester.selector, run, requester, stranger));
        vm.prank(stranger);
        market.announce(run, terms);
        terms.maxUnits = 0;
        _refuse(terms, abi.encodeWithSelector(IMarket.BadTerms.selector, "maxUnits"));
        vm.prank(requester);
        market.close(run);
        _refuse(_next(), abi.encodeWithSelector(IMarket.RunIsClosed.selector, run));
    }
}
