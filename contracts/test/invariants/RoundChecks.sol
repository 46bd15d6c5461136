// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Appeal, Round, Seat, State} from "../../src/interfaces/IRounds.sol";
import {RevealedVote, History} from "./Histories.sol";
import {Checks} from "./Checks.sol";

/// @title RoundChecks: rounds, verdicts and appeals, at any moment
abstract contract RoundChecks is Checks {
    function checkRounds() internal view {
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            Round memory stored = rounds.roundOf(round);
            History memory told = chronicle.historyOf(round);
            eventsTellARound(stored, told);
            storageBelongsToItsRound(stored, told);
            verdictsStayWithinWhatWasSubmitted(stored);
            trainedOnWasAccepted(stored, told);
            appealsPendingAreUndecided(round, told);
            batchesAreSettledOnce(round, stored);
            endedRoundsHoldNothing(stored);
            seatsAreDistinctAndEligible(round, stored);
            if (stored.state == State.Tallied || stored.state == State.Settled) {
                majorityIsCounting(round, stored, told);
            }
        }
        jobsAreCreditedAtMostOnceByAQuorum();
        submissionsAreTheirNodes();
        roundsMoveOn();
        moneyWaitsForTheWindow();
        noRoundOpensWhilePaused();
    }

    function eventsTellARound(Round memory stored, History memory told) internal pure {
        vm.assertEq(uint256(stored.state), uint256(told.state), "events tell the state");
        vm.assertEq(stored.submitted, told.submitted, "events tell what was submitted");
        vm.assertEq(stored.accepted, told.accepted, "events tell what was accepted");
        vm.assertEq(stored.fraud, told.fraud, "events tell what was fraud");
        vm.assertEq(stored.consumed, told.consumed, "events tell what was trained on");
        vm.assertEq(stored.batches, told.batches, "events tell the batches");
        vm.assertEq(stored.attempt, told.attempt, "events tell the attempt");
    }

    /// Round storage is reused: it must hold no values of an earlier round.
    function storageBelongsToItsRound(Round memory stored, History memory told) internal pure {
        bool ended = stored.state == State.Settled || stored.state == State.Void;
        if (stored.openedAt == 0) {
            vm.assertTrue(ended, "a round has storage until it ends");
            vm.assertTrue(
                stored.assignmentsHash == 0 && stored.eligible == 0 && stored.closeBlock == 0,
                "an ended round has no storage"
            );
            return;
        }
        vm.assertTrue(stored.state != State.Settled, "a settled round has no storage");
        vm.assertEq(stored.appealed, told.appealed, "events tell what was appealed");
        vm.assertEq(stored.appeals, told.appeals, "events tell the appeals pending");
        vm.assertEq(stored.jurorFee, told.jurorFee, "storage has its round's fee");
        vm.assertEq(stored.pricePerUnit, told.pricePerUnit, "storage has its round's price");
        vm.assertEq(stored.maxUnits, told.maxUnits, "storage has its round's units");
        bytes32 hash = told.parent == 0 ? keccak256(told.assignments) : bytes32(0);
        vm.assertEq(stored.assignmentsHash, hash);
    }

    function verdictsStayWithinWhatWasSubmitted(Round memory stored) internal pure {
        vm.assertEq((stored.accepted | stored.fraud) & ~stored.submitted, 0, "verdicts are within what was submitted");
        bool judged = stored.state == State.Tallied || stored.state == State.Settled;
        vm.assertTrue(judged || (stored.accepted | stored.fraud) == 0, "no verdict before a tally");
    }

    function trainedOnWasAccepted(Round memory stored, History memory told) internal view {
        vm.assertEq(stored.consumed & ~told.everAccepted, 0, "trained on was accepted");
        vm.assertEq(told.tainted & ~stored.consumed, 0, "tainted was trained on");
        vm.assertEq(
            stored.consumed & ~(stored.accepted & ~stored.fraud) & ~told.tainted,
            0,
            "overturned and trained on is tainted"
        );
        _never("trained on once");
        _never("trained on if accepted");
    }

    function appealsPendingAreUndecided(uint256 round, History memory told) internal view {
        uint256 pending;
        for (uint256 left = told.appealed; left != 0; left &= left - 1) {
            uint256 appealRound = rounds.appealOf(round, _lowest(left));
            Appeal memory made = rounds.appealAt(appealRound);
            vm.assertTrue(made.round == round && made.job == _lowest(left), "an appeal knows its job");
            State state = rounds.roundOf(appealRound).state;
            if (state != State.Settled && state != State.Void) ++pending;
        }
        vm.assertEq(told.appeals, pending, "appeals pending are the undecided");
    }

    function batchesAreSettledOnce(uint256 round, Round memory stored) internal view {
        uint256 unsettled;
        for (uint8 batch; batch < stored.batches; ++batch) {
            if (rounds.batchDigest(round, batch) != 0) ++unsettled;
        }
        // A round that ended without a verdict has forgotten the batches that were never settled.
        uint256 left = stored.openedAt == 0 ? 0 : uint256(stored.batches) - stored.settledBatches;
        vm.assertEq(left, unsettled, "batches are settled once");
    }

    function endedRoundsHoldNothing(Round memory stored) internal pure {
        if (stored.state == State.Settled) {
            vm.assertEq(stored.settledBatches, stored.batches, "a settled round has no batch left");
            vm.assertEq(stored.appeals, 0, "a settled round has no appeal left");
        }
        bool ended = stored.state == State.Settled || stored.state == State.Void;
        vm.assertTrue(!ended || stored.reserved == 0, "an ended round has no reserve");
    }

    function seatsAreDistinctAndEligible(uint256 round, Round memory stored) internal view {
        if (stored.state != State.Voting) return;
        Seat[] memory seats = rounds.seatsOf(round);
        vm.assertEq(seats.length, stored.committee, "every seat is drawn");
        uint256 first = _slotsOf(rounds.appealAt(round).round);
        uint256 seen;
        for (uint256 i; i < seats.length; ++i) {
            uint256 bit = uint256(1) << registry.nodeOf(seats[i].node).slot;
            vm.assertEq(seen & bit, 0, "seats are distinct");
            vm.assertTrue(stored.eligible & bit != 0, "seats are eligible");
            vm.assertEq(first & bit, 0, "an appeal's seats exclude the first committee");
            seen |= bit;
        }
    }

    function _slotsOf(uint256 round) private view returns (uint256 slots) {
        if (round == 0) return 0;
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            slots |= uint256(1) << registry.nodeOf(seats[i].node).slot;
        }
    }

    /// Recounts the revealed votes job by job; jobs decided by an appeal are checked against the appeal's own tally.
    function majorityIsCounting(uint256 round, Round memory stored, History memory told) internal view {
        RevealedVote[] memory votes = chronicle.votesOf(round);
        for (uint256 left = stored.submitted & ~told.appealed; left != 0; left &= left - 1) {
            uint256 bit = left & (~left + 1);
            (uint256 accepts, uint256 frauds, uint256 both) = (0, 0, 0);
            for (uint256 i; i < votes.length; ++i) {
                if (votes[i].accept & votes[i].fraud & bit != 0) ++both;
                else if (votes[i].accept & bit != 0) ++accepts;
                else if (votes[i].fraud & bit != 0) ++frauds;
            }
            bool unavailable = 2 * both > stored.committee;
            bool accepted = unavailable || 2 * accepts > stored.committee;
            bool fraud = unavailable || 2 * frauds > stored.committee;
            vm.assertTrue((stored.accepted & bit != 0) == accepted, "acceptance is counting");
            vm.assertTrue((stored.fraud & bit != 0) == fraud, "fraud is counting");
        }
        uint256 voted;
        for (uint256 i; i < votes.length; ++i) {
            if (!votes[i].abstained) ++voted;
        }
        vm.assertTrue(2 * voted > stored.committee, "a verdict has its quorum");
    }

    function jobsAreCreditedAtMostOnceByAQuorum() internal view {
        _never("a job is credited once");
        _never("credited by a quorum");
        _never("outcomes are the verdict");
        _never("appealed jobs are left alone");
    }

    function submissionsAreTheirNodes() internal view {
        _never("a job is its node's to submit");
        _never("a job is submitted once");
    }

    function roundsMoveOn() internal view {
        _never("rounds move on");
        _never("attempts are counted");
        _never("an end waits for all");
    }

    function moneyWaitsForTheWindow() internal view {
        _never("money waits for the window");
        _never("appeals come within their window");
        _never("one appeal a job");
    }

    function noRoundOpensWhilePaused() internal view {
        _never("no rounds while paused");
    }

    function _lowest(uint256 bits) private pure returns (uint8 index) {
        for (; bits & 1 == 0; bits >>= 1) {
            ++index;
        }
    }
}
