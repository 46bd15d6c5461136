// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Cause, IRegistry} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, Round, State} from "../src/interfaces/IRounds.sol";
import {Bitmaps} from "../src/libraries/Bitmaps.sol";
import {Scenario} from "./Scenario.sol";

contract TallyTest is Scenario {
    uint256 internal round;
    uint32[] internal jurors;

    function setUp() public override {
        super.setUp();
        round = drawnRound(10);
        jurors = jurorsOf(round);
    }

    function _vote(uint256[3] memory accepts, uint256[3] memory frauds) private {
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], accepts[i], frauds[i], reasonsFor(round, accepts[i] & ~frauds[i]));
        }
        for (uint256 i; i < 2; ++i) {
            revealVote(round, jurors[i], accepts[i], frauds[i], reasonsFor(round, accepts[i] & ~frauds[i]));
        }
        requireState(round, State.Voting);
    }

    function testFuzz_lastRevealTalliesTheMajorityOfEachJob(uint8[3] memory accept8, uint8[3] memory fraud8) public {
        uint256[3] memory accepts;
        uint256[3] memory frauds;
        for (uint256 i; i < 3; ++i) {
            (accepts[i], frauds[i]) = (accept8[i], fraud8[i]);
        }
        _vote(accepts, frauds);
        (uint256 accepted, uint256 fraud) = (0, 0);
        for (uint256 job; job < 8; ++job) {
            uint256[4] memory named;
            for (uint256 i; i < 3; ++i) {
                ++named[((accepts[i] >> job) & 1) + 2 * ((frauds[i] >> job) & 1)];
            }
            if (named[1] > 1 || named[3] > 1) accepted |= uint256(1) << job;
            if (named[2] > 1 || named[3] > 1) fraud |= uint256(1) << job;
        }
        bytes memory reasons = reasonsFor(round, accepts[2] & ~frauds[2]);
        address key = keyAddress(jurors[2]);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RoundTallied(round, 0, accepted, fraud, uint40(block.timestamp));
        vm.prank(key);
        rounds.reveal(round, accepts[2], frauds[2], reasons, EVIDENCE, SALT);
        requireState(round, State.Tallied);
        vm.assertEq(rounds.roundOf(round).accepted, accepted);
        vm.assertEq(rounds.roundOf(round).fraud, fraud);
    }

    function testFuzz_bitwiseMajorityEqualsCounting(uint256[15] memory words, uint8 seats) public pure {
        seats = uint8(bound(seats, 0, 7)) * 2 + 1;
        uint256[] memory cast = new uint256[](seats);
        for (uint256 i; i < seats; ++i) {
            cast[i] = words[i];
        }
        uint256 threshold = (uint256(seats) + 1) / 2;
        uint256 majority = Bitmaps.atLeast(cast, threshold);
        for (uint256 job; job < 256; ++job) {
            uint256 votes;
            for (uint256 i; i < seats; ++i) {
                votes += (cast[i] >> job) & 1;
            }
            vm.assertEq((majority >> job) & 1 == 1, votes >= threshold);
        }
    }

    function testFuzz_countEqualsCounting(uint256 bits) public pure {
        uint256 ones;
        for (uint256 left = bits; left != 0; left &= left - 1) {
            ++ones;
        }
        vm.assertEq(Bitmaps.count(bits), ones);
        vm.assertEq(Bitmaps.count(type(uint256).max), 256);
    }

    function test_absentSeatPaysThePenaltyAndTheRestDecide() public {
        commitVote(round, jurors[0], 255, 0, "");
        commitVote(round, jurors[1], 255, 0, "");
        commitVote(round, jurors[2], 255, 0, "");
        revealVote(round, jurors[0], 255, 0, "");
        revealVote(round, jurors[2], 255, 0, "");
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline, block.timestamp));
        rounds.tally(round);
        vm.warp(deadline + 1);
        address owner = registry.ownerOf(jurors[1]);
        vm.expectEmit(address(registry));
        emit IRegistry.NodeSlashed(
            jurors[1], owner, round, Cause.Absence, ABSENCE_PENALTY, VALIDATOR_BOND - ABSENCE_PENALTY
        );
        rounds.tally(round);
        requireState(round, State.Tallied);
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        vm.assertEq(registry.treasuryBalance(), ABSENCE_PENALTY);
    }

    /// The commitment of a seat that never revealed is not counted as a vote.
    function test_commitmentIsNotCountedAsAVote() public {
        vm.prank(keyAddress(jurors[0]));
        rounds.commit(round, bytes32(type(uint256).max));
        bytes memory reasons = reasonsFor(round, 0);
        commitVote(round, jurors[1], 255, 0, "");
        commitVote(round, jurors[2], 0, 0, reasons);
        revealVote(round, jurors[1], 255, 0, "");
        revealVote(round, jurors[2], 0, 0, reasons);
        requireState(round, State.Voting);
        pass(101);
        rounds.tally(round);
        vm.assertEq(rounds.roundOf(round).accepted, 0);
    }

    function test_abstentionIsOutsideTheQuorumAndFree() public {
        commitVote(round, jurors[0], 0, 0, hex"ff");
        commitVote(round, jurors[1], 255, 0, "");
        commitVote(round, jurors[2], 255, 0, "");
        revealVote(round, jurors[0], 0, 0, hex"ff");
        revealVote(round, jurors[1], 255, 0, "");
        revealVote(round, jurors[2], 255, 0, "");
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        vm.assertEq(registry.treasuryBalance(), 0);
    }

    function test_withoutQuorumEverySeatIsDrawnAgainThreeTimesThenTheRoundIsVoid() public {
        address paid = registry.ownerOf(jurors[0]);
        commitVote(round, jurors[0], 255, 0, "");
        pass(201);
        address key = keyAddress(jurors[0]);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.JurorSettled(round, jurors[0], 0, JUROR_FEE);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.CommitteeRedrawn(round, 1, uint40(block.timestamp + 300));
        vm.prank(key);
        rounds.reveal(round, 255, 0, "", EVIDENCE, SALT);
        vm.assertEq(credits.balanceOf(paid), JUROR_FEE);
        requireState(round, State.Closed);
        Round memory stored = rounds.roundOf(round);
        vm.assertEq(stored.committed + stored.revealed + stored.abstained, 0);
        vm.assertEq(rounds.seatsOf(round).length, 0);
        uint128 left = stored.reserved;
        for (uint256 attempt = 1; attempt < 4; ++attempt) {
            vm.assertEq(rounds.roundOf(round).attempt, attempt);
            mine(1);
            rounds.draw(round);
            vm.assertEq(rounds.seatsOf(round).length, 3);
            pass(201);
            if (attempt == 3) {
                vm.expectEmit(address(rounds));
                emit IRoundsFacts.RoundVoided(round, left);
            }
            rounds.tally(round);
        }
        requireState(round, State.Void);
        vm.assertEq(registry.treasuryBalance(), 0, "nobody pays for a window that nobody could meet");
        vm.assertEq(market.runOf(run).escrow, ESCROW - JUROR_FEE);
        rounds.free(round, fourEach());
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0);
    }

    /// Whoever sees the others' votes before withholding its own pays even if there is no quorum.
    function test_withheldRevealIsPenalisedWithoutAQuorumToo() public {
        commitVote(round, jurors[0], 255, 0, "");
        commitVote(round, jurors[1], 255, 0, "");
        pass(201);
        revealVote(round, jurors[0], 255, 0, "");
        pass(101);
        rounds.tally(round);
        requireState(round, State.Closed);
        vm.assertEq(registry.nodeOf(jurors[0]).bond, VALIDATOR_BOND);
        vm.assertEq(registry.nodeOf(jurors[1]).bond, VALIDATOR_BOND - ABSENCE_PENALTY);
        vm.assertEq(registry.nodeOf(jurors[2]).bond, VALIDATOR_BOND);
    }

    /// The three verdicts that a vote can name are counted apart: one accepting and two unavailable votes are no
    /// majority for acceptance, though all three set the accepted bit.
    function test_unavailableVotesDoNotCountAsAcceptances() public {
        uint256[3] memory frauds = [uint256(0), 255, 255];
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], 255, frauds[i], reasonsFor(round, 255 & ~frauds[i]));
        }
        for (uint256 i; i < 3; ++i) {
            revealVote(round, jurors[i], 255, frauds[i], reasonsFor(round, 255 & ~frauds[i]));
        }
        vm.assertEq(rounds.roundOf(round).accepted, 255);
        vm.assertEq(rounds.roundOf(round).fraud, 255);
        settleRound(round, 10);
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 0, "unpaid");
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB, "not slashed");
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[i])), 0, "an unavailable vote earns no fee");
        }
    }

    function test_redrawnCommitteeDecides() public {
        pass(201);
        rounds.tally(round);
        mine(1);
        rounds.draw(round);
        voteAll(round, 255, 0);
        requireState(round, State.Tallied);
        settleRound(round, 10);
        requireState(round, State.Settled);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[0])), JUROR_FEE);
    }

    function test_everyoneAbstainingIsNoQuorum() public {
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], 0, 0, hex"ff");
        }
        for (uint256 i; i < 3; ++i) {
            revealVote(round, jurors[i], 0, 0, hex"ff");
        }
        requireState(round, State.Closed);
        vm.assertEq(registry.treasuryBalance(), 0);
        vm.assertEq(credits.balanceOf(registry.ownerOf(jurors[0])), 0);
    }

    function test_tallyWaitsForThoseWhoMayStillReveal() public {
        commitVote(round, jurors[0], 255, 0, "");
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline + 100);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline + 100, deadline + 100));
        rounds.tally(round);
        vm.warp(deadline + 101);
        rounds.tally(round);
        requireState(round, State.Closed);
    }

    /// Once committing is over, the last seat that can reveal tallies, without the absent.
    function test_lastRevealTalliesWithoutTheAbsent() public {
        commitVote(round, jurors[0], 255, 0, "");
        commitVote(round, jurors[2], 255, 0, "");
        pass(201);
        revealVote(round, jurors[2], 255, 0, "");
        requireState(round, State.Voting);
        revealVote(round, jurors[0], 255, 0, "");
        requireState(round, State.Tallied);
        vm.assertEq(registry.treasuryBalance(), ABSENCE_PENALTY);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.Tallied));
        rounds.tally(round);
    }
}
