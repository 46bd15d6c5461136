// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Credits} from "../src/Credits.sol";
import {Market} from "../src/Market.sol";
import {Registry} from "../src/Registry.sol";
import {Rounds} from "../src/Rounds.sol";
import {Token} from "../src/Token.sol";
import {Run} from "../src/interfaces/IMarket.sol";
import {Node} from "../src/interfaces/IRegistry.sol";
import {Round, State} from "../src/interfaces/IRounds.sol";
import {Bitmaps} from "../src/libraries/Bitmaps.sol";
import {Base} from "./Base.sol";
import {Parties} from "./Parties.sol";

/// What forge takes to leave some functions of a target alone.
struct FuzzSelector {
    address addr;
    bytes4[] selectors;
}

/// @title What holds at any moment, whatever the parties do
contract InvariantsTest is Base {
    Parties internal parties;
    Token internal token;
    Registry internal registry;
    Credits internal credits;
    Market internal market;
    Rounds internal rounds;

    function setUp() public {
        parties = new Parties();
        parties.setUp();
        (address token_, address registry_, address credits_, address market_, address rounds_) = parties.contracts();
        token = Token(token_);
        registry = Registry(registry_);
        credits = Credits(credits_);
        market = Market(market_);
        rounds = Rounds(rounds_);
    }

    /// Where forge looks for what to call.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(parties);
    }

    function excludeSelectors() external view returns (FuzzSelector[] memory excluded) {
        excluded = new FuzzSelector[](1);
        excluded[0] = FuzzSelector(address(parties), new bytes4[](1));
        excluded[0].selectors[0] = parties.setUp.selector;
    }

    /// A handler that always reverts proves nothing.
    function test_partiesReachAVerdictAndItsSettlement() public {
        parties.open(3, 4);
        parties.advance(0, 7, 0);
        parties.publish(0, 3);
        parties.open(3, 4);
        parties.advance(0, 7, 1);
        vm.assertEq(parties.done("settle"), 2);
        vm.assertEq(parties.done("publish"), 1);
    }

    function invariant_registryHoldsExactlyItsBonds() public view {
        uint256 bonds;
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            bonds += registry.nodeOf(node).bond;
        }
        vm.assertEq(bonds, registry.totalBonded(), "bonds");
        vm.assertEq(token.balanceOf(address(registry)), bonds, "tokens");
    }

    function invariant_creditsAreFullyBacked() public view {
        uint256 held = credits.balanceOf(parties.theRequester());
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            address owner = registry.ownerOf(node);
            if (_firstOf(owner) == node) held += credits.balanceOf(owner);
        }
        vm.assertEq(held + credits.totalLocked(), credits.totalSupply(), "sum");
        vm.assertEq(token.balanceOf(address(credits)), credits.totalSupply(), "backing");
    }

    function invariant_escrowAndReservesAreWhatIsLocked() public view {
        Run memory run = market.runOf(parties.theRun());
        vm.assertEq(uint256(run.escrow) + run.reserved, credits.totalLocked(), "locked");
        uint256 reserved;
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            reserved += rounds.roundOf(round).reserved;
        }
        vm.assertEq(reserved, run.reserved, "reserved");
    }

    function invariant_verdictsStayWithinWhatWasSubmitted() public view {
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            Round memory stored = rounds.roundOf(round);
            vm.assertEq(stored.accepted & stored.fraud, 0, "both");
            vm.assertEq((stored.accepted | stored.fraud) & ~stored.submitted, 0, "unsubmitted");
            vm.assertEq(stored.consumed & ~stored.accepted, 0, "consumed");
            if (stored.state == State.Void) vm.assertEq(stored.accepted, 0, "void");
        }
    }

    function invariant_jobsInFlightAreThoseOfRoundsNotEnded() public view {
        uint256 inFlight;
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            vm.assertLe(stored.inFlight, stored.capacity);
            inFlight += stored.inFlight;
        }
        uint256 jobs;
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            Round memory stored = rounds.roundOf(round);
            bool freed = stored.state == State.Settled || stored.assignmentsHash == 0;
            if (!freed) jobs += stored.jobs;
        }
        vm.assertEq(inFlight, jobs, "in flight");
    }

    function invariant_everyTokenIsSomewhere() public view {
        uint256 known = token.balanceOf(address(registry)) + token.balanceOf(address(credits));
        known += token.balanceOf(parties.theTreasury()) + token.balanceOf(parties.theRequester());
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            address owner = registry.ownerOf(node);
            if (_firstOf(owner) == node) known += token.balanceOf(owner);
        }
        vm.assertEq(known, token.totalSupply(), "tokens");
    }

    function _firstOf(address owner) private view returns (uint32 node) {
        for (node = 1; registry.ownerOf(node) != owner; ++node) {}
    }
}
