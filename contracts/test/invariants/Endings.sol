// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Credits} from "../../src/Credits.sol";
import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {Run} from "../../src/interfaces/IMarket.sol";
import {Node} from "../../src/interfaces/IRegistry.sol";
import {Round, State} from "../../src/interfaces/IRounds.sol";
import {Strangers} from "./Strangers.sol";

/// @title Endings: coordinators, trainers and jurors are silent, strangers end every round, and then all parties leave
abstract contract Endings is Strangers {
    /// Most ticks that any round can need: close, two draws and tallies, three batches, and the end, an appeal's included.
    uint256 private constant MOST_TICKS = 24;

    function endEverything() external told {
        for (uint256 tick; tick < MOST_TICKS; ++tick) {
            bool moved;
            for (uint256 round = 1; round <= rounds.roundCount(); ++round) {
                moved = _tickOn(round) || moved;
            }
            if (!moved) return;
        }
    }

    function _tickOn(uint256 round) private returns (bool) {
        Round memory stored = rounds.roundOf(round);
        if (stored.state == State.Open) _close(round);
        else if (stored.state == State.Closed) _draw(round);
        else if (stored.state == State.Voting) _tally(round);
        else if (stored.state == State.Tallied) _settle(round);
        else if (stored.state == State.Void && stored.assignmentsHash != 0) _free(round);
        else return false;
        return true;
    }

    /// Runs close and give back, nodes retire and withdraw, credits are redeemed, slashes swept.
    function leaveAll() external told {
        for (uint256 run_ = 1; run_ <= market.runCount(); ++run_) {
            Run memory stored = market.runOf(run_);
            if (!stored.closed) _due("closeRun", requester, address(market), abi.encodeCall(Market.close, (run_)));
            if (stored.escrow == 0) continue;
            _due("refund", requester, address(market), abi.encodeCall(Market.refund, (run_, stored.escrow)));
        }
        uint32 nodes = registry.nodeCount();
        for (uint32 node = 1; node <= nodes; ++node) {
            Node memory stored = registry.nodeOf(node);
            if (stored.retiredAt != 0) continue;
            _due("retire", stored.owner, address(registry), abi.encodeCall(Registry.retire, (node)));
        }
        pass(UNBONDING);
        for (uint32 node = 1; node <= nodes; ++node) {
            Node memory stored = registry.nodeOf(node);
            if (stored.withdrawn) continue;
            _due("withdraw", stored.owner, address(registry), abi.encodeCall(Registry.withdraw, (node)));
        }
        for (uint256 i; i < people.length; ++i) {
            uint256 have = credits.balanceOf(people[i]);
            if (have != 0) _due("redeem", people[i], address(credits), abi.encodeCall(Credits.redeem, (have)));
        }
        if (registry.treasuryBalance() == 0) return;
        _due("sweep", stranger, address(registry), abi.encodeCall(Registry.sweep, ()));
    }
}
