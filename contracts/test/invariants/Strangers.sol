// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Registry} from "../../src/Registry.sol";
import {IJudgement, IRoundsFacts, ISettlement, Round, State} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Strangers: accounts without a role, which move rounds on whenever they may
/// @notice Every tick here is a right: were it refused, a round could be held up.
abstract contract Strangers is World {
    function close(uint256 pick) external told {
        _close(_roundIn(State.Open, pick));
    }

    function draw(uint256 pick) external told {
        _draw(_roundIn(State.Closed, pick));
    }

    function tally(uint256 pick) external told {
        _tally(_roundIn(State.Voting, pick));
    }

    function settle(uint256 pick) external told {
        _settle(_roundIn(State.Tallied, pick));
    }

    function free(uint256 pick) external told {
        uint256 round = _roundIn(State.Void, pick);
        require(rounds.roundOf(round).assignmentsHash != 0, "freed");
        _free(round);
    }

    function expire(uint256 pick) external told {
        State[3] memory states = [State.Open, State.Closed, State.Voting];
        uint256 round = _roundIn(states[pick % 3], pick / 3);
        bytes memory call = abi.encodeCall(IJudgement.expire, (round));
        uint256 end = _endsBy(rounds.roundOf(round));
        if (block.timestamp <= end) {
            require(pick % 4 == 0, "patience");
            _warpTo(end);
            _refused("expire early", stranger, address(rounds), call, IRoundsFacts.TooEarly.selector);
            _warpTo(end + 1);
        }
        _due("expire", stranger, address(rounds), call);
    }

    function sweep() external told {
        require(registry.treasuryBalance() != 0, "nothing slashed");
        uint256 before = token.balanceOf(admin.treasury());
        uint256 amount = registry.treasuryBalance();
        _due("sweep", stranger, address(registry), abi.encodeCall(Registry.sweep, ()));
        if (token.balanceOf(admin.treasury()) != before + amount) blocked = "sweep to the treasury";
    }

    /// Unsolicited tokens, which must change nothing.
    function donate(uint256 pick, uint256 amount) external told {
        amount = bound(amount, 1, 1 ether);
        token.drip(stranger, amount);
        vm.prank(stranger);
        token.transfer(pick % 2 == 0 ? address(registry) : address(credits), amount);
        if (pick % 2 == 0) donatedToRegistry += amount;
        else donatedToCredits += amount;
        _count("donate");
    }

    function wait(uint256 seconds_) external told {
        pass(bound(seconds_, 1, 300));
        _count("wait");
    }

    /// The present phase of a round runs out.
    function lapse(uint256 state, uint256 pick) external told {
        _warpTo(uint256(rounds.roundOf(_roundIn(State(1 + state % 4), pick)).deadline) + 1);
        _count("lapse");
    }

    function _close(uint256 round) internal {
        Round memory stored = rounds.roundOf(round);
        bytes memory call = abi.encodeCall(IJudgement.close, (round, chronicle.assignmentsOf(round)));
        if (block.timestamp <= stored.deadline) {
            _warpTo(stored.deadline);
            _refused("close early", stranger, address(rounds), call, IRoundsFacts.TooEarly.selector);
            _warpTo(uint256(stored.deadline) + 1);
        }
        _due(stored.submitted == 0 ? bytes32("close empty") : bytes32("close"), stranger, address(rounds), call);
    }

    function _draw(uint256 round) internal {
        mine(1);
        Round memory stored = rounds.roundOf(round);
        bool late = block.timestamp > stored.deadline || block.timestamp > _endsBy(stored);
        _due(
            late ? bytes32("draw late") : bytes32("draw"),
            stranger,
            address(rounds),
            abi.encodeCall(IJudgement.draw, (round))
        );
    }

    function _tally(uint256 round) internal {
        Round memory stored = rounds.roundOf(round);
        bytes memory call = abi.encodeCall(IJudgement.tally, (round));
        bool waiting = !stored.revealing && stored.committed != 0;
        uint256 until = uint256(stored.deadline) + (waiting ? stored.revealSeconds : 0);
        bool complete = stored.revealing && stored.revealed == stored.committed;
        if (!complete && block.timestamp <= until) {
            _warpTo(until);
            _refused("tally early", stranger, address(rounds), call, IRoundsFacts.TooEarly.selector);
            _warpTo(until + 1);
        }
        _due("tally", stranger, address(rounds), call);
        if (rounds.roundOf(round).state == State.Closed) _count("redraw");
    }

    /// The next batch, or the end.
    function _settle(uint256 round) internal {
        Round memory stored = rounds.roundOf(round);
        bytes memory assignments = chronicle.assignmentsOf(round);
        for (uint8 batch; batch < stored.batches; ++batch) {
            if (rounds.batchDigest(round, batch) == 0) continue;
            bytes memory call =
                abi.encodeCall(ISettlement.settle, (round, batch, assignments, chronicle.batchOf(round, batch)));
            if (block.timestamp < stored.deadline) {
                _warpTo(stored.deadline - 1);
                _refused("settle early", stranger, address(rounds), call, IRoundsFacts.TooEarly.selector);
                _warpTo(stored.deadline);
            }
            _due("settle", stranger, address(rounds), call);
            return _refused("settle twice", stranger, address(rounds), call);
        }
        bytes memory end = abi.encodeCall(ISettlement.finish, (round, assignments));
        if (stored.appeals == 0) _due("finish", stranger, address(rounds), end);
        else _refused("finish early", stranger, address(rounds), end, IRoundsFacts.NotFinished.selector);
    }

    function _free(uint256 round) internal {
        bytes memory call = abi.encodeCall(ISettlement.free, (round, chronicle.assignmentsOf(round)));
        _due("free", stranger, address(rounds), call);
        _refused("free twice", stranger, address(rounds), call);
    }
}
