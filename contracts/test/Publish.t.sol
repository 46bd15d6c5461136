// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption, IMarket} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract PublishTest is Scenario {
    bytes32 internal constant ROOT = keccak256("manifest 1");

    function _of(uint256 round, uint256 jobs) private pure returns (Consumption[] memory consumed) {
        consumed = new Consumption[](1);
        consumed[0] = Consumption(round, jobs);
    }

    function testFuzz_acceptedJobsAreConsumedOnce(uint256 accept, uint256 first) public {
        accept = bound(accept, 1, 255);
        first &= accept;
        uint256 round = talliedRound(10, accept, 0);
        Consumption[] memory consumed = _of(round, first);
        vm.startPrank(trainer);
        vm.expectEmit(address(market));
        emit IMarket.CheckpointPublished(run, 1, ROOT, consumed);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JobsConsumed(round, run, first);
        market.publish(run, 1, ROOT, consumed);
        vm.assertEq(market.runOf(run).version, 1);
        vm.assertEq(market.manifestRootOf(run, 1), ROOT);
        market.publish(run, 2, ROOT, _of(round, accept & ~first));
        vm.assertEq(rounds.roundOf(round).consumed, accept);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AlreadyConsumed.selector, round, accept));
        market.publish(run, 3, ROOT, _of(round, accept));
        vm.stopPrank();
    }

    /// Both bits are unavailable, which is no acceptance.
    function test_unavailableJobIsNeverConsumed() public {
        uint256 round = drawnRound(10);
        uint32[] memory jurors = jurorsOf(round);
        bytes memory reasons = reasonsFor(round, 254);
        for (uint256 i; i < jurors.length; ++i) {
            commitVote(round, jurors[i], 255, 1, reasons);
        }
        for (uint256 i; i < jurors.length; ++i) {
            revealVote(round, jurors[i], 255, 1, reasons);
        }
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotAccepted.selector, round, 1));
        vm.prank(trainer);
        market.publish(run, 1, ROOT, _of(round, 255));
        vm.prank(trainer);
        market.publish(run, 1, ROOT, _of(round, 254));
        vm.assertEq(rounds.roundOf(round).consumed, 254);
    }

    function testFuzz_whatWasNotAcceptedIsNeverConsumed(uint256 accept, uint256 jobs) public {
        accept = bound(accept, 0, 255);
        vm.assume(jobs & ~accept != 0);
        uint256 round = talliedRound(10, accept, ~accept);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotAccepted.selector, round, jobs & ~accept));
        vm.prank(trainer);
        market.publish(run, 1, ROOT, _of(round, jobs));
    }

    function test_roundNotTalliedAndTheSameRoundTwiceAreRefused() public {
        uint256 round = drawnRound(10);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Voting));
        vm.prank(trainer);
        market.publish(run, 1, ROOT, _of(round, 1));
        voteAll(round, 255, 0);
        tallyDue(round);
        Consumption[] memory twice = new Consumption[](2);
        (twice[0], twice[1]) = (Consumption(round, 3), Consumption(round, 2));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AlreadyConsumed.selector, round, 2));
        vm.prank(trainer);
        market.publish(run, 1, ROOT, twice);
    }

    function test_roundOfAnotherRunIsRefused() public {
        uint256 round = talliedRound(10, 255, 0);
        uint256 other = openRun(runTerms());
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongRun.selector, round, other));
        vm.prank(trainer);
        market.publish(other, 1, ROOT, _of(round, 1));
    }

    function test_settledRoundCanStillBeConsumed() public {
        uint256 round = talliedRound(10, 255, 0);
        settleRound(round, 10);
        vm.prank(trainer);
        market.publish(run, 1, ROOT, _of(round, 255));
    }

    function testFuzz_versionsOnlyRise(uint32 first, uint32 second) public {
        first = uint32(bound(first, 1, type(uint32).max));
        second = uint32(bound(second, 0, first));
        Consumption[] memory none = new Consumption[](0);
        vm.startPrank(trainer);
        market.publish(run, first, ROOT, none);
        vm.expectRevert(abi.encodeWithSelector(IMarket.VersionNotNext.selector, second, first));
        market.publish(run, second, ROOT, none);
        vm.stopPrank();
    }

    function test_onlyTheTrainerPublishesAndOnlyTheMarketConsumes() public {
        Consumption[] memory none = new Consumption[](0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotTrainer.selector, run, trainer, stranger));
        vm.prank(stranger);
        market.publish(run, 1, ROOT, none);
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "manifestRoot"));
        vm.prank(trainer);
        market.publish(run, 1, 0, none);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotMarket.selector, address(this)));
        rounds.consume(run, 1, 1);
    }
}
