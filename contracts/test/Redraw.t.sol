// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";
import {State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Redraws leave out those who did not vote, as long as enough validators remain
contract RedrawTest is Appeals {
    function _slots(uint256 round) private view returns (uint256 slots) {
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < jurors.length; ++i) {
            slots |= uint256(1) << registry.nodeOf(jurors[i]).slot;
        }
    }

    function _enrol(uint256 more) private {
        for (uint256 i; i < more; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("validator", 100 + i), 1));
        }
        pass(ACTIVATION);
        for (uint256 i = validators.length - more; i < validators.length; ++i) {
            joinRun(run, validators[i]);
        }
    }

    /// With three validators more than the two committees need, one silent committee is left out.
    function testFuzz_silentSeatsAreNotDrawnAgain(uint256 seed) public {
        _enrol(2);
        vm.roll(block.number + 1 + seed % 100);
        uint256 round = drawnRound(UNITS);
        uint256 silent = _slots(round);
        uint256 before = rounds.roundOf(round).eligible;
        pass(201);
        rounds.tally(round);
        requireState(round, State.Closed);
        vm.assertEq(rounds.roundOf(round).eligible, before & ~silent);
        mine(1);
        rounds.draw(round);
        vm.assertEq(_slots(round) & silent, 0, "drawn again");
        vote(round, all(3, Choice.Accept));
        requireState(round, State.Tallied);
        vm.assertEq(registry.treasuryBalance(), 0);
    }

    /// Who voted in a committee without a quorum may be drawn again; who abstained may not.
    function test_votersStayEligibleAndAbstainersDoNot() public {
        _enrol(2);
        uint256 round = drawnRound(UNITS);
        Choice[] memory choices = all(3, Choice.Abstain);
        choices[1] = Choice.Accept;
        uint256 voter = uint256(1) << registry.nodeOf(jurorsOf(round)[1]).slot;
        uint256 idle = _slots(round) & ~voter;
        uint256 before = rounds.roundOf(round).eligible;
        vote(round, choices);
        requireState(round, State.Closed);
        vm.assertEq(rounds.roundOf(round).eligible, before & ~idle);
    }

    /// Nine validators serve, and the two committees need eight: leaving two out would leave an appeal without jurors.
    function test_nobodyIsLeftOutIfAnAppealCouldNotBeSeated() public {
        uint256 round = drawnRound(UNITS);
        uint256 before = rounds.roundOf(round).eligible;
        Choice[] memory choices = all(3, Choice.Absent);
        choices[0] = Choice.Accept;
        vote(round, choices);
        tallyDue(round);
        requireState(round, State.Closed);
        vm.assertEq(rounds.roundOf(round).eligible, before);
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Fraud));
        tried(appealed(round), Choice.Accept);
        vm.assertEq(rounds.roundOf(round).accepted, 255);
    }
}
