// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket, RunTerms} from "../src/interfaces/IMarket.sol";
import {IRegistry, Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Round, State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Service: the runs that validators join, and the strikes that end it
contract ServiceTest is Appeals {
    bytes32 internal constant NEXT = keccak256("next rules");

    function _emptyRun(RunTerms memory terms) private returns (uint256 run_) {
        vm.prank(requester);
        run_ = market.open(terms, MANIFEST, "https://example.org/run");
    }

    function _join(uint256 run_, uint32 node, bytes32 rules) private {
        address owner = registry.ownerOf(node);
        vm.prank(owner);
        market.join(run_, node, rules);
    }

    function _leave(uint256 run_, uint32 node) private {
        address owner = registry.ownerOf(node);
        vm.prank(owner);
        market.leave(run_, node);
    }

    function _slots(uint256 run_) private view returns (uint256 slots) {
        (slots,) = market.jurorSlots(run_, market.runOf(run_).terms.rulesHash);
    }

    function _bit(uint32 node) private view returns (uint256) {
        return uint256(1) << registry.nodeOf(node).slot;
    }

    function _refuseOpening(bytes memory error) private {
        bytes memory assignments = fourEach();
        vm.expectRevert(error);
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
    }

    // Consent

    function test_aRoundDrawsOnlyValidatorsThatJoinedItsRun() public {
        uint256 other = _emptyRun(runTerms());
        for (uint256 i = 2; i < 6; ++i) {
            _join(other, validators[i], RULES);
        }
        fundRun(other, ESCROW);
        run = other;
        joinRun(other, workers[0]);
        joinRun(other, workers[1]);
        uint256 round = openRound(fourEach());
        vm.assertEq(rounds.roundOf(round).eligible, 0x3c);
    }

    function test_aRunThatNobodyServesOpensNoRound() public {
        run = _emptyRun(runTerms());
        fundRun(run, ESCROW);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
        _refuseOpening(abi.encodeWithSelector(IRoundsFacts.TooFewValidators.selector, 0, 3));
    }

    /// Otherwise a requester could have all verdicts of its run from validators of its own.
    function test_aRoundNeedsAThirdOfTheValidatorsThatServeAnyRun() public {
        run = _emptyRun(runTerms());
        fundRun(run, ESCROW);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
        uint256 other = _emptyRun(runTerms());
        for (uint256 i; i < 12; ++i) {
            uint32 node = registerNode(Role.Validator, ownerNamed("more", i), 1);
            _join(other, node, RULES);
        }
        for (uint256 i; i < 6; ++i) {
            _join(run, validators[i], RULES);
        }
        openRound(fourEach());
        pass(ACTIVATION);
        _refuseOpening(abi.encodeWithSelector(IRoundsFacts.TooFewValidators.selector, 6, 7));
        _join(run, validators[6], RULES);
        openRound(listing(workers[0], 1));
    }

    function test_aThirdIsOfThoseThatServeAndAreEligible() public {
        (uint256 slots, uint256 least) = market.jurorSlots(run, RULES);
        vm.assertEq(slots, 0x1ff);
        vm.assertEq(least, 3);
        uint256 first = 1;
        for (uint256 i; i < 3; ++i) {
            _leave(first, validators[i]);
        }
        (, least) = market.jurorSlots(run, RULES);
        vm.assertEq(least, 3, "all nine serve the second run still");
        _leave(run, validators[0]);
        _leave(run, validators[3]);
        _leave(run, validators[4]);
        (slots, least) = market.jurorSlots(run, RULES);
        vm.assertEq(slots, 0x1e6);
        vm.assertEq(least, 2);
        vm.prank(ownerNamed("validator", 5));
        registry.retire(validators[5]);
        (slots, least) = market.jurorSlots(run, RULES);
        vm.assertEq(slots, 0x1c6);
        vm.assertEq(least, 2);
    }

    function test_eligibleValidatorsAreFrozenAtOpening() public {
        uint256 round = openRound(fourEach());
        uint256 before = rounds.roundOf(round).eligible;
        for (uint256 i; i < 9; ++i) {
            _leave(run, validators[i]);
        }
        vm.assertEq(rounds.roundOf(round).eligible, before);
        vm.assertEq(_slots(run), 0);
    }

    function test_joiningTwiceAndLeavingOnceLeaves() public {
        _join(run, validators[0], RULES);
        _leave(run, validators[0]);
        vm.assertEq(_slots(run) & _bit(validators[0]), 0);
        _leave(run, validators[0]);
        vm.assertEq(_slots(run) & _bit(validators[0]), 0);
    }

    function test_joiningTwiceIsServingOneRun() public {
        for (uint256 i = 3; i < 6; ++i) {
            _join(run, validators[i], RULES);
            _leave(run, validators[i]);
        }
        (, uint256 least) = market.jurorSlots(run, RULES);
        vm.assertEq(least, 2);
    }

    function test_aRetiredValidatorDoesNotJoin() public {
        address owner = ownerNamed("validator", 0);
        vm.startPrank(owner);
        registry.retire(validators[0]);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyRetired.selector, validators[0]));
        market.join(run, validators[0], RULES);
        vm.stopPrank();
    }

    // New rules

    function _announce() private {
        RunTerms memory terms = appealTerms();
        terms.rulesHash = NEXT;
        vm.prank(requester);
        market.announce(run, terms);
    }

    function test_validatorsJoinNewRulesDuringTheNoticeAndServeTheOldOnesMeanwhile() public {
        _announce();
        _join(run, validators[0], NEXT);
        vm.assertEq(_slots(run), 0x1ff);
        pass(NOTICE);
        vm.assertEq(_slots(run), _bit(validators[0]));
    }

    function test_leavingEndsServiceUnderTheOldAndTheNewRules() public {
        _announce();
        _join(run, validators[0], NEXT);
        _leave(run, validators[0]);
        vm.assertEq(_slots(run), 0x1ff & ~_bit(validators[0]));
        pass(NOTICE);
        vm.assertEq(_slots(run), 0);
    }

    function test_withoutAnAnnouncementThereAreNoOtherRulesToJoin() public {
        address owner = ownerNamed("validator", 0);
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(IMarket.WrongRules.selector, bytes32(0), RULES));
        market.join(run, validators[0], 0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.WrongRules.selector, NEXT, RULES));
        market.join(run, validators[0], NEXT);
        vm.stopPrank();
    }

    // Slots

    function _replace(uint32 gone, uint256 index) private returns (uint32 heir) {
        address owner = registry.ownerOf(gone);
        vm.startPrank(owner);
        registry.retire(gone);
        vm.warp(block.timestamp + UNBONDING);
        registry.withdraw(gone);
        vm.stopPrank();
        heir = registerNode(Role.Validator, ownerNamed("heir", index), 1);
        vm.assertEq(registry.nodeOf(heir).slot, registry.nodeOf(gone).slot);
        pass(ACTIVATION);
    }

    /// Consent is the node's: the next holder of its slot is not drawn in runs it never joined.
    function test_aSlotsNextHolderServesOnlyRunsItJoined() public {
        uint32 heir = _replace(validators[4], 0);
        vm.assertTrue(registry.eligible() & _bit(heir) != 0, "in service");
        vm.assertEq(_slots(run), 0x1ff & ~_bit(heir));
        _leave(run, validators[0]);
        _join(run, validators[0], RULES);
        vm.assertEq(_slots(run), 0x1ff & ~_bit(heir), "nor when another joins");
        _join(run, heir, RULES);
        vm.assertEq(_slots(run), 0x1ff);
    }

    function test_whoLeavesAfterWithdrawingLeavesTheSlotsNewHolderIn() public {
        uint32 gone = validators[4];
        uint32 heir = _replace(gone, 0);
        _join(run, heir, RULES);
        _leave(run, gone);
        vm.assertEq(_slots(run), 0x1ff);
        vm.assertEq(market.joinedAt(run, heir), RULES);
    }

    function test_manySlotsThatChangeHandsAreAllForgotten() public {
        uint256 gone;
        for (uint256 i; i < 9; ++i) {
            for (uint256 again; again < 4; ++again) {
                uint32 node = registry.nodeAt(uint8(i));
                gone |= _bit(node);
                _replace(node, 4 * i + again);
            }
        }
        vm.assertEq(_slots(run), 0);
        uint256 all = type(uint256).max;
        (uint256 slots, uint256 passings) = registry.passedSince(0, all);
        vm.assertEq(slots, gone);
        vm.assertEq(passings, 36);
        (slots,) = registry.passedSince(31, all);
        vm.assertEq(slots, uint256(3) << 7);
        (slots,) = registry.passedSince(31, uint256(1) << 7);
        vm.assertEq(slots, uint256(1) << 7);
        (slots,) = registry.passedSince(36, all);
        vm.assertEq(slots, 0);
    }

    /// A squatter may pass a slot on to itself for years: what that costs everybody else does not grow.
    function test_passingsCostNobodyMoreHoweverManyThereWere() public {
        uint256 first;
        for (uint256 i; i < 40; ++i) {
            _replace(registry.nodeAt(4), i);
            uint256 gas = gasleft();
            market.jurorSlots(run, RULES);
            gas -= gasleft();
            if (i == 0) first = gas;
            vm.assertLe(gas, first, "gas");
        }
    }

    // Service that no round can use any more

    function _endedByAStranger(uint256 run_, uint32 node) private {
        vm.prank(stranger);
        market.leave(run_, node);
        vm.assertEq(market.joinedAt(run_, node), bytes32(0));
    }

    function _refusedToAStranger(uint256 run_, uint32 node) private {
        bytes memory refusal =
            abi.encodeWithSelector(IMarket.NotNodeOwner.selector, node, registry.ownerOf(node), stranger);
        vm.expectRevert(refusal);
        vm.prank(stranger);
        market.leave(run_, node);
    }

    /// Validators that stayed behind in a closed run count in the third that every other run needs, until someone ends
    /// their service.
    function test_anyoneEndsTheServiceOfAClosedRunSoThatOtherRunsNeedNoThirdOfIt() public {
        uint256 closed = _emptyRun(runTerms());
        for (uint256 i; i < 19; ++i) {
            _join(closed, registerNode(Role.Validator, ownerNamed("more", i), 1), RULES);
        }
        pass(ACTIVATION);
        vm.prank(requester);
        market.close(closed);
        _refuseOpening(abi.encodeWithSelector(IRoundsFacts.TooFewValidators.selector, 9, 10));
        for (uint8 slot = 9; slot < 28; ++slot) {
            _endedByAStranger(closed, registry.nodeAt(slot));
        }
        openRound(fourEach());
    }

    function test_nobodyElseEndsAServiceThatARoundCanUse() public {
        _refusedToAStranger(run, validators[0]);
        _announce();
        _refusedToAStranger(run, validators[0]);
        _join(run, validators[0], NEXT);
        _refusedToAStranger(run, validators[0]);
        _leave(run, validators[0]);
        _join(run, validators[0], NEXT);
        _refusedToAStranger(run, validators[0]);
        pass(NOTICE);
        _refusedToAStranger(run, validators[0]);
        vm.assertEq(_slots(run), _bit(validators[0]));
    }

    function test_anyoneEndsAServiceOfRulesThatAreNoLongerInEffect() public {
        _announce();
        pass(NOTICE);
        _endedByAStranger(run, validators[0]);
    }

    /// It consented to rules that never came, and serves those in effect all the same.
    function test_rulesThatWereAnnouncedAndReplacedLetNobodyEndTheServiceOfThoseInEffect() public {
        _announce();
        _join(run, validators[0], NEXT);
        RunTerms memory terms = appealTerms();
        terms.rulesHash = keccak256("rules after next");
        vm.prank(requester);
        market.announce(run, terms);
        _refusedToAStranger(run, validators[0]);
        vm.assertEq(_slots(run), 0x1ff);
        pass(NOTICE);
        _endedByAStranger(run, validators[0]);
    }

    function test_aStrangerEndsNothingOfWorkersNorOfWhoHasNotJoined() public {
        _leave(run, validators[0]);
        vm.prank(requester);
        market.close(run);
        _refusedToAStranger(run, validators[0]);
        _refusedToAStranger(run, workers[0]);
    }

    // Strikes

    function _struck(uint32 node) private view returns (uint256 count) {
        (count,) = market.strikesOf(run, node);
    }

    /// The seats of one round: the first stays silent, the second abstains, the third votes.
    function test_anEmptySeatAndAnAbstentionAreStrikesAndAVoteIsNot() public {
        uint256 round = drawnRound(UNITS);
        uint32[] memory jurors = jurorsOf(round);
        Choice[] memory choices = all(3, Choice.Accept);
        choices[0] = Choice.Absent;
        choices[1] = Choice.Abstain;
        vote(round, choices);
        requireState(round, State.Closed);
        vm.assertEq(_struck(jurors[0]), 1);
        vm.assertEq(_struck(jurors[1]), 1);
        vm.assertEq(_struck(jurors[2]), 0);
    }

    function _silentUntilOut(uint32 node) private returns (uint256 since) {
        for (uint256 i; i < MAX_STRIKES; ++i) {
            vm.assertEq(market.joinedAt(run, node), RULES);
            if (i == 0) since = block.timestamp;
            vm.prank(address(rounds));
            market.strike(run, 1 + i, node);
            pass(1);
        }
        vm.assertEq(market.joinedAt(run, node), bytes32(0));
    }

    function test_strikesEndServiceInTheirRunAloneUntilTheUnbondingDelayIsOver() public {
        uint32 node = validators[0];
        uint256 until = _silentUntilOut(node) + UNBONDING;
        vm.assertEq(_slots(run), 0x1ff & ~_bit(node));
        vm.assertEq(_slots(1), 7);
        bytes memory error = abi.encodeWithSelector(IMarket.StruckOut.selector, run, node, until);
        vm.startPrank(ownerNamed("validator", 0));
        vm.expectRevert(error);
        market.join(run, node, RULES);
        vm.warp(until - 1);
        vm.expectRevert(error);
        market.join(run, node, RULES);
        vm.warp(until);
        market.join(run, node, RULES);
        vm.stopPrank();
        vm.assertEq(_slots(run), 0x1ff);
        vm.assertEq(_struck(node), 0);
    }

    function test_leavingDoesNotClearStrikes() public {
        uint32 node = validators[0];
        vm.expectEmit(address(market));
        emit IMarket.NodeStruck(run, node, 1, 1);
        vm.prank(address(rounds));
        market.strike(run, 1, node);
        _leave(run, node);
        _join(run, node, RULES);
        vm.assertEq(_struck(node), 1);
    }

    function test_strikesThatArePastDoNotCount() public {
        uint32 node = validators[0];
        for (uint256 i; i < 3 * MAX_STRIKES; ++i) {
            vm.prank(address(rounds));
            market.strike(run, 1 + i, node);
            vm.assertEq(_struck(node), 1);
            pass(UNBONDING);
            vm.assertEq(_struck(node), 0);
        }
        vm.assertEq(market.joinedAt(run, node), RULES);
    }

    /// Rounds that were open may bring more strikes to a validator that is out already.
    function test_strikesAfterTheLastChangeNothing() public {
        uint32 node = validators[0];
        _silentUntilOut(node);
        vm.prank(address(rounds));
        market.strike(run, 1 + MAX_STRIKES, node);
        vm.assertEq(_struck(node), MAX_STRIKES + 1);
    }

    function test_onlyRoundsCountsStrikes() public {
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotRounds.selector, stranger));
        vm.prank(stranger);
        market.strike(run, 1, validators[0]);
    }

    /// The first committee cannot read a job, and the appeal's can: no juror is fined, and each has a strike.
    function test_anUnavailableVoteThatAnAppealContradictsIsAStrike() public {
        uint256 round = drawnRound(UNITS);
        uint32[] memory jurors = jurorsOf(round);
        vote(round, all(3, Choice.Unavailable));
        uint256 appealRound = appealed(round);
        tried(appealRound, Choice.Accept);
        for (uint256 i; i < jurors.length; ++i) {
            vm.assertEq(_struck(jurors[i]), 1);
            vm.assertEq(registry.nodeOf(jurors[i]).bond, VALIDATOR_BOND);
        }
    }

    /// Whoever holds the stores shows every file on appeal only: that is one strike for the round, however many jobs.
    function test_oneRoundIsOneStrikeHoweverManyOfItsVotesAreContradicted() public {
        uint256 round = drawnRound(UNITS);
        uint32[] memory jurors = jurorsOf(round);
        vote(round, all(3, Choice.Unavailable));
        uint256 first = appealed(round);
        uint256 second = appealBy(appellant, round, 1);
        mine(1);
        tried(first, Choice.Accept);
        tried(second, Choice.Accept);
        for (uint256 i; i < jurors.length; ++i) {
            vm.assertEq(_struck(jurors[i]), 1);
        }
    }

    function test_strikesOfTwoRoundsInTurnAreTwo() public {
        for (uint256 i; i < 2 * MAX_STRIKES; ++i) {
            vm.prank(address(rounds));
            market.strike(run, 1 + i % 2, validators[0]);
        }
        vm.assertEq(_struck(validators[0]), 2);
        vm.assertEq(market.joinedAt(run, validators[0]), RULES);
    }

    /// A run that starves its validators of time costs them nothing but their service in it.
    function test_strikesOfARunWithoutAQuorumEndServiceThereAlone() public {
        for (uint256 i; i < 9; ++i) {
            uint32 node = validators[i];
            _silentUntilOut(node);
            vm.assertEq(registry.nodeOf(node).bond, VALIDATOR_BOND);
        }
        vm.assertEq(_slots(run), 0);
        vm.assertEq(_slots(1), 7);
        run = 1;
        openRound(fourEach());
    }
}
