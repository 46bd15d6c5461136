// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {State} from "../src/interfaces/IRounds.sol";
import {MoneyChecks} from "./invariants/MoneyChecks.sol";
import {NodeChecks} from "./invariants/NodeChecks.sol";
import {FuzzSelector} from "./invariants/Recorder.sol";
import {RoundChecks} from "./invariants/RoundChecks.sol";
import {Successes} from "./invariants/Successes.sol";

/// @title Invariants that hold at any moment, for any calls
/// @notice One campaign checks all invariants, because each entry would be a campaign of its own. After every run the market is
/// wound up: coordinators, trainers and jurors stop, strangers end every round, all parties withdraw, and the checks run again.
contract InvariantsTest is MoneyChecks, NodeChecks, RoundChecks, Successes {
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(parties);
    }

    function excludeSelectors() external view returns (FuzzSelector[] memory excluded) {
        excluded = new FuzzSelector[](1);
        bytes4[] memory selectors = new bytes4[](8);
        selectors[0] = parties.setUp.selector;
        selectors[1] = parties.endEverything.selector;
        selectors[2] = parties.leaveAll.selector;
        selectors[3] = parties.submit.selector;
        selectors[4] = parties.vote.selector;
        selectors[5] = parties.tickOnce.selector;
        selectors[6] = parties.appealOne.selector;
        selectors[7] = parties.expireOne.selector;
        excluded[0] = FuzzSelector(address(parties), selectors);
    }

    function invariant_everythingHolds() public view {
        checkMoney();
        checkNodes();
        checkRounds();
    }

    function afterInvariant() public {
        countSuccesses();
        parties.endEverything();
        everyRoundHasEnded();
        checkMoney();
        checkNodes();
        checkRounds();
        parties.leaveAll();
        everybodyLeftWithAll();
        checkMoney();
        checkNodes();
    }

    /// Strangers' calls and time are enough, even if all parties are silent.
    function everyRoundHasEnded() internal view {
        for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
            State state = rounds.roundOf(round).state;
            vm.assertTrue(state == State.Settled || state == State.Void, "every round reaches an end");
        }
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            vm.assertEq(registry.nodeOf(node).inFlight, 0, "every node is free");
        }
        for (uint256 run = 1; run <= market.runCount(); ++run) {
            vm.assertEq(market.runOf(run).reserved, 0, "every reserve is free");
        }
    }

    /// The contracts keep only the tokens donated to them.
    function everybodyLeftWithAll() internal view {
        vm.assertEq(credits.totalSupply(), 0, "all credits are redeemed");
        vm.assertEq(registry.totalBonded(), 0, "all bonds are withdrawn");
        vm.assertEq(token.balanceOf(address(credits)), parties.donatedToCredits(), "credits hold nothing");
        vm.assertEq(token.balanceOf(address(registry)), parties.donatedToRegistry(), "the registry holds nothing");
    }
}
