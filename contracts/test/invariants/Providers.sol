// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Node} from "../../src/interfaces/IRegistry.sol";
import {IJudgement, IRoundsFacts, State} from "../../src/interfaces/IRounds.sol";
import {Submission} from "../Scenario.sol";
import {World} from "./World.sol";

/// @title Providers: the coordinator that lists jobs, and the workers that submit them
abstract contract Providers is World {
    function open(uint256 pick) public told {
        uint256 run_ = _anyRun(pick);
        bytes memory assignments = _listAny(run_, pick / 8);
        require(assignments.length != 0, "nobody to list");
        _do("open", coordinator, address(rounds), abi.encodeCall(IJudgement.open, (run_, 1, 0, assignments)));
    }

    function openOverCapacity(uint256 pick) external told {
        uint256 run_ = _anyRun(pick);
        uint32 node = workers[pick % workers.length];
        Node memory stored = registry.nodeOf(node);
        uint256 count = uint256(stored.capacity) - stored.inFlight + 1;
        bytes memory call = abi.encodeCall(IJudgement.open, (run_, 1, 0, listing(node, count)));
        _refused("open over capacity", coordinator, address(rounds), call);
    }

    /// Up to three workers, one to four jobs each.
    function _listAny(uint256 run_, uint256 pick) private view returns (bytes memory assignments) {
        bytes32 rules = market.runOf(run_).terms.rulesHash;
        for (uint256 i; i < workers.length && assignments.length < 15; ++i) {
            uint32 node = workers[(pick % 64 + i) % workers.length];
            if (market.joinedAt(run_, node) != rules || !registry.isListable(node)) continue;
            Node memory stored = registry.nodeOf(node);
            uint256 room = stored.capacity - stored.inFlight;
            uint256 count = 1 + (pick >> (8 * i)) % 4;
            if (room != 0) assignments = bytes.concat(assignments, listing(node, count < room ? count : room));
        }
    }

    /// All that is still missing, in one batch or, by `pick`, less some nodes' parts.
    function submitWhole(uint256 pick) external {
        submit(_roundIn(State.Open, pick), 0, pick);
    }

    function submitPart(uint256 pick, uint256 skipped) external {
        submit(_roundIn(State.Open, pick), 1 + skipped % 6, pick);
    }

    /// One item is bad; the others are taken.
    function submitSpoiled(uint256 pick) external told {
        uint256 round = _roundIn(State.Open, pick);
        Submission[] memory good = _missing(round, 0, pick);
        require(good.length != 0, "all in");
        Submission[] memory items = new Submission[](good.length + 3);
        for (uint256 i; i < good.length; ++i) {
            items[i + 1] = good[i];
        }
        // A job of another node, one submitted before, and a signature over other leaves.
        items[0] = submission(round, validators[pick % 10], good[0].leaves);
        items[good.length + 1] = good[0];
        items[good.length + 2] = good[0];
        items[good.length + 2].leaves = bytes.concat(good[0].leaves, good[0].leaves);
        bytes memory assignments = chronicle.assignmentsOf(round);
        bytes memory spoiled = abi.encodeCall(IJudgement.submit, (round, assignments, packed(items)));
        _do("submit spoiled", stranger, address(rounds), spoiled);
        bytes memory again = abi.encodeCall(IJudgement.submit, (round, assignments, packed(good)));
        bool open_ = rounds.roundOf(round).state == State.Open;
        bytes4 why = open_ ? IRoundsFacts.NothingTaken.selector : IRoundsFacts.WrongState.selector;
        _refused("submit twice", coordinator, address(rounds), again, why);
    }

    /// `skipped` is a bitmap of listings left out.
    function submit(uint256 round, uint256 skipped, uint256 pick) public told {
        Submission[] memory items = _missing(round, skipped, pick);
        require(items.length != 0, "nothing to submit");
        bytes memory call = abi.encodeCall(IJudgement.submit, (round, chronicle.assignmentsOf(round), packed(items)));
        bool late = block.timestamp > rounds.roundOf(round).deadline;
        address sender = pick % 2 == 0 ? coordinator : registry.keyOf(items[0].node);
        if (late) _refused("submit late", sender, address(rounds), call, IRoundsFacts.TooLate.selector);
        else _due(skipped == 0 ? bytes32("submit") : bytes32("submit part"), sender, address(rounds), call);
    }

    /// The parts of nodes that have a key and have not submitted.
    function _missing(uint256 round, uint256 skipped, uint256 pick) private view returns (Submission[] memory items) {
        bytes memory assignments = chronicle.assignmentsOf(round);
        uint256 submitted = rounds.roundOf(round).submitted;
        uint256 listings = assignments.length / 5;
        items = new Submission[](listings);
        uint256 job;
        uint256 taken;
        for (uint256 i; i < listings; ++i) {
            uint256 count = uint256(uint8(assignments[5 * i + 4])) + 1;
            uint32 node = _nodeAt(assignments, 5 * i);
            if (((submitted >> job) | (skipped >> i)) & 1 == 0 && registry.keyOf(node) != address(0)) {
                items[taken++] = _part(round, node, job, count, pick);
            }
            job += count;
        }
        assembly ("memory-safe") {
            mstore(items, taken)
        }
    }

    function _part(uint256 round, uint32 node, uint256 first, uint256 count, uint256 pick)
        private
        view
        returns (Submission memory)
    {
        return submission(round, node, leavesOf(first, count, _units(pick)));
    }

    /// Sometimes more than a job is paid for.
    function _units(uint256 pick) private pure returns (uint64) {
        return uint64(pick % 3 == 0 ? 2 * MAX_UNITS : 500 + pick % 1000);
    }

    function _nodeAt(bytes memory assignments, uint256 at) private pure returns (uint32 node) {
        for (uint256 i; i < 4; ++i) {
            node = node << 8 | uint8(assignments[at + i]);
        }
    }
}
