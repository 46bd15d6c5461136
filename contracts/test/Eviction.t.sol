// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Cause, IRegistry, Node, Role} from "../src/interfaces/IRegistry.sol";
import {State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

/// @title Eviction: newcomers to a house of 256 validators
/// @notice The first three validators serve the run and hold the slots 0 to 2. All bonds are equal, so that slot 0 is
/// contested first.
contract EvictionTest is Scenario {
    uint128 internal constant PRICE_OF_A_SLOT = VALIDATOR_BOND + VALIDATOR_BOND / 4;
    uint40 internal constant NEVER = type(uint40).max;

    uint256 private _newcomers;

    function setUp() public override {
        super.setUp();
        for (uint256 i = 3; i < 256; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("squatter", i), 1));
        }
        pass(ACTIVATION);
    }

    // Helpers

    function _contest() private returns (uint32 newcomer) {
        address owner = ownerNamed("newcomer", _newcomers++);
        give(owner, 1000 ether, address(registry));
        return _contestBy(owner);
    }

    function _contestBy(address owner) private returns (uint32 newcomer) {
        uint256 key = uint256(keccak256(abi.encode("key", registry.nodeCount())));
        bytes memory signature = binding(owner, key, Role.Validator, 1);
        vm.prank(owner);
        newcomer = registry.contest(vm.addr(key), block.timestamp, signature);
        keyOf[newcomer] = key;
    }

    function _refuseContest(bytes4 error) private {
        address key = vm.addr(99);
        bytes memory signature = binding(stranger, 99, Role.Validator, 1);
        vm.expectRevert(error);
        vm.prank(stranger);
        registry.contest(key, block.timestamp, signature);
    }

    /// By the time that the activation delay is over.
    function _displaced() private returns (uint32 newcomer) {
        newcomer = _contest();
        pass(ACTIVATION);
        registry.displace(newcomer);
    }

    function _topUp(uint32 node, uint128 amount) private {
        give(stranger, amount, address(registry));
        vm.prank(stranger);
        registry.topUp(node, amount);
    }

    function _retire(uint32 node) private {
        address owner = registry.ownerOf(node);
        vm.prank(owner);
        registry.retire(node);
    }

    function _withdraw(uint32 node) private returns (uint256) {
        address owner = registry.ownerOf(node);
        vm.prank(owner);
        return registry.withdraw(node);
    }

    function _waiting() private view returns (uint32 newcomer) {
        (newcomer,) = registry.contestOf(0);
    }

    function _drawable(uint8 slot) private view returns (bool) {
        return (registry.eligible() >> slot) & 1 == 1;
    }

    // Contests

    function test_whileASlotIsFreeNobodyContests() public {
        _retire(validators[200]);
        pass(UNBONDING);
        _withdraw(validators[200]);
        _refuseContest(IRegistry.SlotsFree.selector);
        vm.expectRevert(IRegistry.SlotsFree.selector);
        registry.nextContest();
    }

    function test_aNewcomerPostsAQuarterMoreThanTheLeastBondAndWaits() public {
        (uint8 slot, uint128 bond) = registry.nextContest();
        vm.assertEq(slot, 0);
        vm.assertEq(bond, PRICE_OF_A_SLOT);
        uint32 next = registry.nodeCount() + 1;
        uint40 until = uint40(block.timestamp) + ACTIVATION;
        give(stranger, PRICE_OF_A_SLOT, address(registry));
        vm.expectEmit(address(registry));
        emit IRegistry.SlotContested(0, validators[0], next, PRICE_OF_A_SLOT, until);
        uint32 newcomer = _contestBy(stranger);
        Node memory waiting = registry.nodeOf(newcomer);
        vm.assertEq(waiting.bond, PRICE_OF_A_SLOT);
        vm.assertEq(waiting.activeAt, NEVER);
        vm.assertTrue(!registry.isListable(newcomer), "waits");
        vm.assertEq(registry.nodeAt(0), validators[0]);
        vm.assertEq(registry.holderOf(0), validators[0]);
        (uint32 waits, uint40 end) = registry.contestOf(0);
        vm.assertEq(waits, newcomer);
        vm.assertEq(end, until);
        vm.assertEq(token.balanceOf(address(registry)), registry.totalBonded());
        vm.assertTrue(_drawable(0), "the holder serves on");
    }

    function test_theLeastBondIsContestedAndNoneIsContestedTwice() public {
        for (uint256 i; i < 8; ++i) {
            _topUp(validators[i], 1 ether);
        }
        vm.assertEq(registry.nodeOf(_contest()).slot, 8);
        vm.assertEq(registry.nodeOf(_contest()).slot, 9);
        vm.prank(address(rounds));
        registry.slash(validators[255], 1, Cause.Absence, 90 ether);
        (uint8 slot, uint128 bond) = registry.nextContest();
        vm.assertEq(slot, 255);
        vm.assertEq(bond, VALIDATOR_BOND, "the required bond at least");
    }

    function test_aContestReadsEverySlotForABoundedCost() public view {
        uint256 gas = gasleft();
        registry.nextContest();
        vm.assertLe(gas - gasleft(), 1_200_000, "gas");
    }

    // Matching

    function test_aHolderThatMatchesKeepsItsSlotAndTheNewcomerHasItsBondBackAtOnce() public {
        uint32 newcomer = _contest();
        pass(ACTIVATION - 1);
        give(stranger, VALIDATOR_BOND / 4, address(registry));
        vm.expectEmit(address(registry));
        emit IRegistry.SlotKept(0, validators[0], newcomer);
        vm.prank(stranger);
        registry.topUp(validators[0], VALIDATOR_BOND / 4);
        vm.assertEq(_waiting(), 0);
        vm.assertEq(_withdraw(newcomer), PRICE_OF_A_SLOT);
        vm.assertEq(registry.holderOf(0), validators[0]);
        pass(ACTIVATION);
        vm.assertTrue(_drawable(0), "serves on");
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotWaiting.selector, newcomer));
        registry.displace(newcomer);
    }

    function test_lessThanTheNewcomersBondDoesNotMatchItAndMayBeMadeUp() public {
        uint32 newcomer = _contest();
        _topUp(validators[0], VALIDATOR_BOND / 4 - 1);
        vm.assertEq(_waiting(), newcomer);
        _topUp(validators[0], 1);
        vm.assertEq(_waiting(), 0);
    }

    function test_afterTheActivationDelayItIsTooLateToMatch() public {
        uint32 newcomer = _contest();
        pass(ACTIVATION);
        _topUp(validators[0], VALIDATOR_BOND);
        registry.displace(newcomer);
        vm.assertEq(registry.holderOf(0), newcomer);
    }

    function test_beforeThatNobodyIsDisplaced() public {
        uint32 newcomer = _contest();
        pass(ACTIVATION - 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillMatchable.selector, newcomer, block.timestamp + 1));
        registry.displace(newcomer);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotWaiting.selector, validators[5]));
        registry.displace(validators[5]);
    }

    /// The holder matches what it saw: the newcomer cannot raise its bond, nor leave with its turn taken.
    function test_aNewcomerThatWaitsNeitherTopsUpNorRetiresNorJoins() public {
        uint32 newcomer = _contest();
        bytes memory error = abi.encodeWithSelector(IRegistry.WaitsForSlot.selector, newcomer);
        address owner = registry.ownerOf(newcomer);
        vm.startPrank(owner);
        vm.expectRevert(error);
        registry.topUp(newcomer, 1);
        vm.expectRevert(error);
        registry.retire(newcomer);
        vm.expectRevert(error);
        market.join(run, newcomer, RULES);
        vm.stopPrank();
    }

    function test_aNewcomerThatChangesItsKeyWhileItWaitsLeavesTheHolderInService() public {
        uint32 newcomer = _contest();
        address owner = registry.ownerOf(newcomer);
        vm.prank(owner);
        registry.revokeKey(newcomer);
        vm.assertTrue(_drawable(0), "the holder serves on");
    }

    function test_whoOnlySquatsRetiredCannotMatch() public {
        _retire(validators[0]);
        uint32 newcomer = _contest();
        give(stranger, VALIDATOR_BOND, address(registry));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyRetired.selector, validators[0]));
        vm.prank(stranger);
        registry.topUp(validators[0], VALIDATOR_BOND);
        uint40 retiredAt = registry.nodeOf(validators[0]).retiredAt;
        pass(ACTIVATION);
        registry.displace(newcomer);
        vm.assertEq(registry.nodeOf(validators[0]).retiredAt, retiredAt, "unbonds from when it retired");
    }

    // Displacement

    function test_theDisplacedCountsAsRetiredWithItsBondLocked() public {
        uint32 gone = validators[0];
        uint32 newcomer = _contest();
        pass(ACTIVATION);
        uint40 now_ = uint40(block.timestamp);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeRetired(gone, registry.ownerOf(gone), now_, now_ + UNBONDING);
        vm.expectEmit(address(registry));
        emit IRegistry.SlotPassed(0, gone, newcomer, now_ + MAX_ROUND + 1);
        vm.prank(stranger);
        registry.displace(newcomer);
        vm.assertEq(registry.nodeOf(gone).retiredAt, now_);
        vm.warp(now_ + UNBONDING - 1);
        address owner = registry.ownerOf(gone);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillBonded.selector, gone, now_ + UNBONDING, 0));
        vm.prank(owner);
        registry.withdraw(gone);
        vm.warp(now_ + UNBONDING);
        vm.assertEq(_withdraw(gone), VALIDATOR_BOND);
        vm.assertEq(registry.holderOf(0), newcomer, "its withdrawal frees no slot of another");
        vm.assertTrue(_drawable(0), "nor its service");
        _refuseRegistration();
    }

    function _refuseRegistration() private {
        bytes memory signature = binding(stranger, 99, Role.Validator, 1);
        vm.expectRevert(IRegistry.NoFreeSlot.selector);
        vm.prank(stranger);
        registry.register(Role.Validator, vm.addr(99), 1, block.timestamp, signature);
    }

    /// Otherwise it would miss its reveal, and pay for it.
    function test_whoIsEvictedInTheMiddleOfARoundIsSeatedVotesAndPaysNothing() public {
        uint32 newcomer = _contest();
        pass(ACTIVATION - 1);
        uint256 round = submittedRound(10);
        pass(1);
        registry.displace(newcomer);
        rounds.draw(round);
        uint32[] memory jurors = jurorsOf(round);
        bool seated;
        for (uint256 i; i < 3; ++i) {
            seated = seated || jurors[i] == validators[0];
        }
        vm.assertTrue(seated, "all three are");
        voteAll(round, 0xff, 0);
        vm.assertTrue(rounds.roundOf(round).state == State.Tallied, "judged");
        vm.assertEq(registry.nodeOf(validators[0]).bond, VALIDATOR_BOND);
    }

    function test_whoIsEvictedBetweenCommitAndRevealReveals() public {
        uint32 newcomer = _contest();
        pass(ACTIVATION - 1);
        uint256 round = drawnRound(10);
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], 0xff, 0, "");
        }
        pass(1);
        registry.displace(newcomer);
        for (uint256 i; i < 3; ++i) {
            revealVote(round, jurors[i], 0xff, 0, "");
        }
        vm.assertTrue(rounds.roundOf(round).state == State.Tallied, "judged");
    }

    /// A round that is opened in the block of the displacement may be drawn a longest round later.
    function test_theSlotSeatsItsOldHolderForALongestRoundAndNobodyInLaterRoundsUntilTheNewcomerIsActive() public {
        uint32 gone = validators[0];
        uint32 newcomer = _contest();
        pass(ACTIVATION);
        uint256 opened = openRound(listing(workers[0], 1));
        vm.assertTrue(rounds.roundOf(opened).eligible & 1 == 1, "before");
        registry.displace(newcomer);
        uint256 latest = block.timestamp + MAX_ROUND;
        vm.assertTrue(!_drawable(0), "in no later round");
        vm.warp(latest);
        vm.assertEq(registry.nodeAt(0), gone);
        vm.assertTrue(!_drawable(0), "in no later round");
        vm.warp(latest + 1);
        vm.assertEq(registry.nodeAt(0), newcomer);
        vm.assertTrue(_drawable(0), "the newcomer");
    }

    /// Its bond is raised above all others and beaten again, before its first holder's rounds are over.
    function test_aSlotThatPassesTwiceInALongestRoundSeatsTheFirstHolderStill() public {
        uint32 gone = validators[0];
        uint32 second = _displaced();
        for (uint256 i = 1; i < 256; ++i) {
            _topUp(validators[i], VALIDATOR_BOND);
        }
        uint32 third = _displaced();
        vm.assertEq(registry.nodeOf(third).slot, 0);
        vm.assertEq(registry.nodeAt(0), gone);
        vm.assertEq(registry.holderOf(0), third);
        vm.warp(registry.nodeOf(second).activeAt);
        vm.assertEq(registry.nodeAt(0), gone);
        vm.assertTrue(!_drawable(0), "nobody");
        vm.warp(registry.nodeOf(third).activeAt);
        vm.assertEq(registry.nodeAt(0), third);
        vm.assertTrue(_drawable(0), "the last");
    }

    function test_aSlotThatPassesAgainAfterALongestRoundSeatsItsSecondHolder() public {
        uint32 second = _displaced();
        vm.warp(registry.nodeOf(second).activeAt);
        for (uint256 i = 1; i < 256; ++i) {
            _topUp(validators[i], VALIDATOR_BOND);
        }
        uint32 third = _displaced();
        vm.assertEq(registry.nodeAt(0), second);
        vm.warp(registry.nodeOf(third).activeAt);
        vm.assertEq(registry.nodeAt(0), third);
    }

    function test_aHolderThatWithdrawsWhileItIsContestedLeavesItsSlotToTheNewcomer() public {
        _retire(validators[0]);
        pass(UNBONDING - 1);
        uint32 newcomer = _contest();
        pass(1);
        _withdraw(validators[0]);
        _refuseRegistration();
        pass(ACTIVATION);
        registry.displace(newcomer);
        vm.assertEq(registry.holderOf(0), newcomer);
        vm.warp(registry.nodeOf(newcomer).activeAt);
        vm.assertTrue(_drawable(0), "serves");
    }

    function test_aNewHolderThatWithdrawsFreesTheSlot() public {
        uint32 newcomer = _displaced();
        _retire(newcomer);
        pass(UNBONDING);
        _withdraw(newcomer);
        vm.assertEq(registry.nodeAt(0), 0);
        uint32 heir = registerNode(Role.Validator, ownerNamed("heir", 0), 1);
        vm.assertEq(registry.nodeAt(0), heir, "and nobody from before");
    }

    function test_aLatePenaltyForTheDisplacedLeavesTheNewcomerInService() public {
        uint32 newcomer = _displaced();
        vm.warp(registry.nodeOf(newcomer).activeAt);
        vm.prank(address(rounds));
        registry.slash(validators[0], 1, Cause.Absence, ABSENCE_PENALTY);
        vm.assertTrue(_drawable(0), "serves");
    }

    // Consent

    function test_theNewcomerServesOnlyRunsThatItJoinedAndMayJoinBeforeItIsActive() public {
        uint32 newcomer = _displaced();
        joinRun(run, newcomer);
        address owner = registry.ownerOf(validators[0]);
        vm.prank(owner);
        market.leave(run, validators[0]);
        vm.warp(registry.nodeOf(newcomer).activeAt);
        (uint256 slots,) = market.jurorSlots(run, RULES);
        vm.assertEq(slots, 7, "who leaves its run after it was displaced takes nobody along");
        uint32 another = _displaced();
        vm.warp(registry.nodeOf(another).activeAt);
        (slots,) = market.jurorSlots(run, RULES);
        vm.assertEq(slots, 5, "slot 1 is of one that has not joined");
    }

    // A sixteenth

    function test_atMostASixteenthOfTheSlotsChangesInAnUnbondingDelay() public {
        uint32[] memory newcomers = new uint32[](16);
        for (uint256 i; i < 16; ++i) {
            newcomers[i] = _contest();
        }
        _refuseContest(IRegistry.TooManyContests.selector);
        pass(ACTIVATION);
        _refuseContest(IRegistry.TooManyContests.selector);
        for (uint256 i; i < 16; ++i) {
            registry.displace(newcomers[i]);
        }
        uint256 from = block.timestamp + UNBONDING;
        vm.warp(from - 1);
        _refuseContest(IRegistry.TooManyContests.selector);
        vm.warp(from);
        vm.assertEq(registry.nodeOf(_contest()).slot, 16);
    }

    /// Who contests its own slots, to take all turns, can keep the turns only by raising these bonds or letting them pass.
    function test_aContestThatWasMatchedFreesItsTurn() public {
        for (uint256 i; i < 16; ++i) {
            _contest();
        }
        _topUp(validators[7], VALIDATOR_BOND / 4);
        vm.assertEq(registry.nodeOf(_contest()).slot, 16, "slot 7 has more than the least bond now");
        _refuseContest(IRegistry.TooManyContests.selector);
    }
}
