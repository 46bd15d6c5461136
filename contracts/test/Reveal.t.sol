// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, Seat} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

contract RevealTest is Scenario {
    uint256 internal round;
    uint32[] internal jurors;

    function setUp() public override {
        super.setUp();
        round = drawnRound(10);
        jurors = jurorsOf(round);
    }

    /// The first juror commits to the given vote, the others to anything: revealing starts.
    function _commitAll(uint256 accept, uint256 fraud, bytes memory reasons) private {
        for (uint256 i; i < 3; ++i) {
            commitVote(round, jurors[i], accept, fraud, reasons);
        }
    }

    function testFuzz_voteIsRecordedWithinWhatWasSubmitted(uint256 accept, uint256 fraud) public {
        fraud &= ~accept;
        bytes memory reasons = reasonsFor(round, accept);
        _commitAll(accept, fraud, reasons);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.VoteRevealed(round, jurors[0], 0, accept, fraud, reasons, EVIDENCE, SALT);
        revealVote(round, jurors[0], accept, fraud, reasons);
        Seat memory seat = rounds.seatsOf(round)[0];
        vm.assertEq(seat.accept, accept & 255);
        vm.assertEq(seat.fraud, fraud & 255);
        vm.assertEq(seat.revealed, true);
        vm.assertEq(seat.abstained, false);
        vm.assertEq(seat.commitment, bytes32(0));
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.AlreadyRevealed.selector, jurors[0]));
        revealVote(round, jurors[0], accept, fraud, reasons);
    }

    /// Both bits are a verdict of their own, unavailable, which needs a reason like every vote but an acceptance.
    function testFuzz_jobInBothBitmapsNeedsAReason(uint256 accept, uint256 fraud) public {
        vm.assume(accept & fraud & 255 != 0);
        bytes memory tooFew = reasonsFor(round, accept);
        _commitAll(accept, fraud, tooFew);
        uint256 needed = reasonsFor(round, accept & ~fraud).length;
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongReasons.selector, tooFew.length, needed));
        revealVote(round, jurors[0], accept, fraud, tooFew);
    }

    function testFuzz_anotherVoteThanTheCommittedIsRefused(uint256 accept, uint256 other) public {
        (accept, other) = (accept & 255, other & 255);
        vm.assume(accept != other);
        _commitAll(accept, 0, reasonsFor(round, accept));
        bytes32 committed = commitmentOf(round, jurors[0], accept, 0, reasonsFor(round, accept));
        bytes32 given = commitmentOf(round, jurors[0], other, 0, reasonsFor(round, other));
        bytes memory reasons = reasonsFor(round, other);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongReveal.selector, given, committed));
        revealVote(round, jurors[0], other, 0, reasons);
    }

    /// A commitment names its juror: copying another's opens nothing.
    function test_copiedCommitmentCannotBeRevealed() public {
        bytes32 copied = commitmentOf(round, jurors[0], 255, 0, "");
        for (uint256 i; i < 3; ++i) {
            vm.prank(keyAddress(jurors[i]));
            rounds.commit(round, copied);
        }
        revealVote(round, jurors[0], 255, 0, "");
        bytes32 own = commitmentOf(round, jurors[1], 255, 0, "");
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongReveal.selector, own, copied));
        revealVote(round, jurors[1], 255, 0, "");
    }

    function testFuzz_everyJobNotAcceptedHasAReason(uint256 accept, uint8 given) public {
        uint256 need = reasonsFor(round, accept).length;
        vm.assume(given != need);
        bytes memory reasons = new bytes(given);
        _commitAll(accept, 0, reasons);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.WrongReasons.selector, given, need));
        revealVote(round, jurors[0], accept, 0, reasons);
    }

    function test_abstentionIsAZeroVoteUnderItsOwnCode() public {
        _commitAll(0, 0, hex"ff");
        revealVote(round, jurors[0], 0, 0, hex"ff");
        vm.assertEq(rounds.seatsOf(round)[0].abstained, true);
        vm.assertEq(rounds.roundOf(round).abstained, 1);
    }

    function test_nobodyRevealsBeforeCommittingEnds() public {
        commitVote(round, jurors[0], 255, 0, "");
        commitVote(round, jurors[2], 255, 0, "");
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline, block.timestamp));
        revealVote(round, jurors[0], 255, 0, "");
        vm.warp(deadline + 1);
        vm.expectEmit(address(rounds));
        emit IRoundsFacts.RevealStarted(round, 0, uint40(deadline + 100));
        revealVote(round, jurors[0], 255, 0, "");
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotCommitted.selector, jurors[1]));
        revealVote(round, jurors[1], 255, 0, "");
    }

    function testFuzz_revealingEndsAtItsDeadline(uint256 late) public {
        _commitAll(255, 0, "");
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline);
        revealVote(round, jurors[0], 255, 0, "");
        late = deadline + bound(late, 1, 365 days);
        vm.warp(late);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, late));
        revealVote(round, jurors[1], 255, 0, "");
    }

    /// A late first reveal prolongs nothing: the window counts from the end of committing.
    function test_firstRevealAfterBothWindowsIsTooLate() public {
        commitVote(round, jurors[0], 255, 0, "");
        uint256 deadline = rounds.roundOf(round).deadline;
        vm.warp(deadline + 101);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline + 100, deadline + 101));
        revealVote(round, jurors[0], 255, 0, "");
    }
}
