// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunTerms} from "../src/interfaces/IMarket.sol";
import {Role} from "../src/interfaces/IRegistry.sol";
import {State} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

/// A juror's vote on the appealed job.
enum Choice {
    Accept,
    Fraud,
    Void,
    Abstain,
    Absent,
    Unavailable
}

/// @title Appeals: the small market with a run that offers appeals
/// @notice Nine validators: three judge, five judge an appeal. The job in question is job 0 of the first worker; all jurors
/// accept the other seven.
abstract contract Appeals is Scenario {
    uint8 internal constant SEATS = 5;
    uint32 internal constant CHALLENGE = 400;
    uint128 internal constant DEPOSIT = APPEAL_BOND + 11 * JUROR_FEE;
    uint256 internal constant SHARE = uint256(MAX_UNITS) * PRICE;
    uint64 internal constant UNITS = 10;

    address internal appellant = address(0xA99);

    function setUp() public virtual override {
        super.setUp();
        for (uint256 i = 3; i < 9; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("validator", i), 1));
        }
        pass(ACTIVATION);
        run = openRun(appealTerms());
        fundRun(run, ESCROW);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
        buy(appellant, 10 * uint256(DEPOSIT));
    }

    function appealTerms() internal view virtual returns (RunTerms memory terms) {
        terms = runTerms();
        terms.appealSeats = SEATS;
        terms.challengeSeconds = CHALLENGE;
    }

    function batchOf(uint256 round) internal view returns (bytes memory) {
        return settled(bothSubmissions(round, UNITS));
    }

    function all(uint256 seats, Choice choice) internal pure returns (Choice[] memory choices) {
        choices = new Choice[](seats);
        for (uint256 i; i < seats; ++i) {
            choices[i] = choice;
        }
    }

    function revealed(uint256 seed, uint256 seats) internal pure returns (Choice[] memory choices) {
        choices = new Choice[](seats);
        for (uint256 i; i < seats; ++i) {
            choices[i] = Choice((seed >> (8 * i)) % 6);
        }
    }

    /// Commits and reveals as `choices` say, and passes the time that absent seats cost.
    function vote(uint256 round, Choice[] memory choices) internal {
        uint32[] memory jurors = jurorsOf(round);
        bool full = true;
        for (uint256 i; i < jurors.length; ++i) {
            (uint256 accept, uint256 fraud, bytes memory reasons) = _cast(round, choices[i]);
            if (choices[i] == Choice.Absent) full = false;
            else commitVote(round, jurors[i], accept, fraud, reasons);
        }
        if (!full) pass(201);
        for (uint256 i; i < jurors.length; ++i) {
            (uint256 accept, uint256 fraud, bytes memory reasons) = _cast(round, choices[i]);
            if (choices[i] != Choice.Absent) revealVote(round, jurors[i], accept, fraud, reasons);
        }
    }

    function _cast(uint256 round, Choice choice) private view returns (uint256 accept, uint256 fraud, bytes memory) {
        if (choice == Choice.Abstain) return (0, 0, hex"ff");
        uint256 submitted = rounds.roundOf(round).submitted;
        bool both = choice == Choice.Unavailable;
        accept = both || choice == Choice.Accept ? submitted : submitted & ~uint256(1);
        fraud = both || choice == Choice.Fraud ? 1 : 0;
        return (accept, fraud, reasonsFor(round, accept & ~fraud));
    }

    /// A round whose three jurors all vote `choice` on job 0.
    function judged(Choice choice) internal returns (uint256 round) {
        round = drawnRound(UNITS);
        vote(round, all(3, choice));
        tallyDue(round);
    }

    function appealBy(address who, uint256 round, uint8 job) internal returns (uint256) {
        bytes memory batch = batchOf(round);
        vm.prank(who);
        return rounds.appeal(round, job, 0, batch);
    }

    function appealed(uint256 round) internal returns (uint256 appealRound) {
        appealRound = appealBy(appellant, round, 0);
        mine(1);
    }

    /// Returns the jurors, as an ended appeal has no seats.
    function tried(uint256 appealRound, Choice[] memory choices) internal returns (uint32[] memory jurors) {
        rounds.draw(appealRound);
        jurors = jurorsOf(appealRound);
        vote(appealRound, choices);
        tallyDue(appealRound);
    }

    function tried(uint256 appealRound, Choice choice) internal returns (uint32[] memory jurors) {
        return tried(appealRound, all(SEATS, choice));
    }

    function settleAll(uint256 round) internal {
        if (block.timestamp < rounds.roundOf(round).deadline) vm.warp(rounds.roundOf(round).deadline);
        rounds.settle(round, 0, fourEach(), batchOf(round));
    }

    /// All tokens and credits match the accounts, and the run has nothing reserved.
    function requireBooksInOrder() internal view {
        vm.assertEq(token.balanceOf(address(credits)), credits.totalSupply(), "credits backed");
        vm.assertEq(
            token.balanceOf(address(registry)), registry.totalBonded() + registry.treasuryBalance(), "bonds kept"
        );
    }

    function requireEnded(uint256 round) internal view {
        requireState(round, State.Settled);
        vm.assertEq(market.runOf(run).reserved, 0, "reserved");
        vm.assertEq(registry.nodeOf(workers[0]).inFlight, 0, "in flight");
        vm.assertEq(registry.nodeOf(workers[1]).inFlight, 0, "in flight");
        requireBooksInOrder();
    }
}
