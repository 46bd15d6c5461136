// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Round, State} from "../../src/interfaces/IRounds.sol";
import {Role} from "../../src/interfaces/IRegistry.sol";
import {Bonds} from "./Bonds.sol";
import {Log} from "./Recorder.sol";

/// A round as its events tell it.
struct History {
    State state;
    uint8 attempt;
    uint256 committee;
    uint256 run;
    uint256 parent;
    uint256 deadline;
    uint256 batches;
    uint256 appeals;
    uint256 submitted;
    uint256 accepted;
    uint256 fraud;
    uint256 everAccepted;
    uint256 consumed;
    uint256 tainted;
    uint256 appealed;
    uint256 pricePerUnit;
    uint256 maxUnits;
    uint256 jurorFee;
    uint256 settled;
    uint256 credited;
    bytes assignments;
}

/// A vote as it was revealed.
struct RevealedVote {
    uint32 juror;
    uint256 accept;
    uint256 fraud;
    bool abstained;
}

/// @title Histories: rounds folded from events
abstract contract Histories is Bonds {
    mapping(uint256 round => History) internal _histories;
    mapping(uint256 round => mapping(uint256 attempt => RevealedVote[])) internal _revealedVotes;
    mapping(uint256 round => mapping(uint256 attempt => uint256)) internal _committed;
    mapping(uint256 round => mapping(uint8 batch => bytes)) internal _batches;
    mapping(uint256 round => mapping(uint256 job => uint256)) internal _claimed;

    function historyOf(uint256 round) external view returns (History memory) {
        return _histories[round];
    }

    function batchOf(uint256 round, uint8 batch) external view returns (bytes memory) {
        return _batches[round][batch];
    }

    function assignmentsOf(uint256 round) external view returns (bytes memory) {
        return _histories[round].assignments;
    }

    function votesOf(uint256 round) external view returns (RevealedVote[] memory) {
        return _revealedVotes[round][_histories[round].attempt];
    }

    function _move(uint256 round, State to) internal {
        State from = _histories[round].state;
        bool forward = to > from && !(from == State.Settled || from == State.Void);
        _hold("rounds move on", forward || (from == State.Voting && to == State.Closed));
        _histories[round].state = to;
    }

    function _open(Log memory log, uint256 round) internal {
        (,,,,,, bytes memory assignments) =
            abi.decode(log.data, (uint64, uint32, uint16, uint16, uint128, uint40, bytes));
        History storage history = _histories[round];
        history.run = uint256(log.topics[2]);
        Round memory stored = ROUNDS.roundOf(round);
        history.committee = stored.committee;
        (history.pricePerUnit, history.maxUnits) = (stored.pricePerUnit, stored.maxUnits);
        history.jurorFee = stored.jurorFee;
        history.assignments = assignments;
        _hold("no rounds while paused", !REGISTRY.admin().paused());
        _hold("only those who serve are drawn", _allServe(history.run, stored.eligible));
        _move(round, State.Open);
        for (uint256 at; at < assignments.length; at += 5) {
            (uint32 node, uint256 count) = _listing(assignments, at);
            inFlightOf[node] += count;
            bytes32 rules = MARKET.runOf(history.run).terms.rulesHash;
            _hold("only those who joined are listed", MARKET.joinedAt(history.run, node) == rules);
            bool fit = REGISTRY.isListable(node) && roleOf[node] == Role.Worker;
            _hold("only the fit are listed", fit && inFlightOf[node] <= capacityOf[node]);
        }
    }

    function _allServe(uint256 run, uint256 slots) private view returns (bool) {
        for (uint256 slot; slots >> slot != 0; ++slot) {
            uint32 node = REGISTRY.nodeAt(uint8(slot));
            if ((slots >> slot) & 1 == 1 && MARKET.joinedAt(run, node) == 0) return false;
        }
        return true;
    }

    function _submit(Log memory log, uint256 round) internal {
        (uint8 batch,, bytes memory leaves,,) = abi.decode(log.data, (uint8, bytes32, bytes, string, bytes));
        History storage history = _histories[round];
        uint32 node = uint32(uint256(log.topics[2]));
        for (uint256 at; at < leaves.length; at += 41) {
            uint8 job = uint8(leaves[at]);
            _hold("a job is its node's to submit", _nodeOf(history.assignments, job) == node);
            _hold("a job is submitted once", history.submitted & (uint256(1) << job) == 0);
            history.submitted |= uint256(1) << job;
            _claimed[round][job] = _unitsIn(leaves, at);
        }
        bytes memory before = _batches[round][batch];
        _batches[round][batch] = abi.encodePacked(before, node, uint8(leaves.length / 41), leaves);
        if (batch >= history.batches) history.batches = uint256(batch) + 1;
    }

    function _draw(Log memory log, uint256 round) internal {
        (uint8 attempt,,,,) = abi.decode(log.data, (uint8, uint64, bytes32, uint32[], uint40));
        _hold("attempts are counted", attempt == _histories[round].attempt && attempt < 4);
        _move(round, State.Voting);
    }

    function _reveal(Log memory log, uint256 round) internal {
        (uint8 attempt, uint256 accept, uint256 fraud, bytes memory reasons,,) =
            abi.decode(log.data, (uint8, uint256, uint256, bytes, bytes32, bytes32));
        uint256 within = _histories[round].submitted;
        bool abstained = accept == 0 && fraud == 0 && reasons.length == 1 && reasons[0] == 0xff;
        uint32 juror = uint32(uint256(log.topics[2]));
        _revealedVotes[round][attempt].push(RevealedVote(juror, accept & within, fraud & within, abstained));
    }

    function _tally(Log memory log, uint256 round) internal {
        (, uint256 accepted, uint256 fraud, uint40 deadline) = abi.decode(log.data, (uint8, uint256, uint256, uint40));
        History storage history = _histories[round];
        _requireAbsences(round, true);
        (history.accepted, history.fraud, history.everAccepted) = (accepted, fraud, accepted & ~fraud);
        history.deadline = deadline;
        _move(round, State.Tallied);
    }

    function _redraw(uint256 round) internal {
        _requireAbsences(round, false);
        ++_histories[round].attempt;
        _move(round, State.Closed);
    }

    /// Of a committee without a quorum only those pay that withheld a reveal.
    function _requireAbsences(uint256 round, bool quorate) private {
        History storage history = _histories[round];
        uint256 revealed = _revealedVotes[round][history.attempt].length;
        uint256 due = quorate ? history.committee : _committed[round][history.attempt];
        _hold("the absent pay", _absences[round] + revealed == due);
        _absences[round] = 0;
    }

    function _settle(Log memory log, uint256 round) internal {
        (, uint256 accepted, uint256 fraud, uint256 void_, uint256 units, uint256 paid) =
            abi.decode(log.data, (uint8, uint256, uint256, uint256, uint256, uint256));
        History storage history = _histories[round];
        uint32 node = uint32(uint256(log.topics[2]));
        uint256 jobs = accepted | fraud | void_;
        _hold("money waits for the window", history.state == State.Tallied && block.timestamp >= history.deadline);
        _hold("appealed jobs are left alone", jobs & history.appealed == 0);
        _hold("outcomes are the verdict", accepted == jobs & history.accepted && fraud == jobs & history.fraud);
        _free(round, node, jobs);
        (accepted, fraud) = (accepted & ~fraud, fraud & ~accepted);
        _credit(round, round, accepted);
        _hold("pay is units by price", units == _unitsOf(round, accepted));
        _hold("pay is units by price", paid == units * history.pricePerUnit);
        if (fraud != 0) _expectSlashes(node, _count(fraud));
    }

    function _expectSlashes(uint32 node, uint256 jobs) internal {
        _unslashed[node] += jobs;
        _unslashedJobs += jobs;
    }

    /// A job leaves the node's count once, and its round with it.
    function _free(uint256 round, uint32 node, uint256 jobs) internal {
        History storage history = _histories[round];
        _hold("a job is settled once", history.settled & jobs == 0 && jobs & ~history.submitted == 0);
        history.settled |= jobs;
        inFlightOf[node] -= _count(jobs);
    }

    /// `judged` is the round whose committee decided: the round itself, or an appeal.
    function _credit(uint256 round, uint256 judged, uint256 jobs) internal {
        History storage history = _histories[round];
        _hold("a job is credited once", history.credited & jobs == 0);
        history.credited |= jobs;
        RevealedVote[] storage votes = _revealedVotes[judged][_histories[judged].attempt];
        for (uint256 left = jobs; left != 0; left &= left - 1) {
            uint256 bit = left & (~left + 1);
            uint256 accepting;
            for (uint256 i; i < votes.length; ++i) {
                if (votes[i].accept & ~votes[i].fraud & bit != 0) ++accepting;
            }
            _hold("credited by a quorum", 2 * accepting > _histories[judged].committee);
        }
    }

    function _juror(Log memory log, uint256 round) internal {
        (uint16 bits, uint256 paid) = abi.decode(log.data, (uint16, uint256));
        History storage history = _histories[round];
        _hold("a fee is at most the fee", paid <= history.jurorFee && bits <= _count(history.submitted));
    }

    function _finish(uint256 round) internal {
        History storage history = _histories[round];
        _move(round, State.Settled);
        if (history.parent != 0) return;
        _hold("an end waits for all", history.settled == history.submitted && history.appeals == 0);
        _freeAllBut(round, history.submitted);
    }

    function _freeAllBut(uint256 round, uint256 submitted) internal {
        bytes memory assignments = _histories[round].assignments;
        uint256 job;
        for (uint256 at; at < assignments.length; at += 5) {
            (uint32 node, uint256 count) = _listing(assignments, at);
            for (uint256 end = job + count; job < end; ++job) {
                if ((submitted >> job) & 1 == 0) --inFlightOf[node];
            }
        }
        if (submitted == 0) _histories[round].assignments = "";
    }

    function _consume(uint256 round, uint256 jobs) internal {
        History storage history = _histories[round];
        _hold("trained on once", jobs & history.consumed == 0);
        _hold("trained on if accepted", jobs & ~(history.accepted & ~history.fraud) == 0);
        history.consumed |= jobs;
    }

    function _unitsOf(uint256 round, uint256 jobs) internal view returns (uint256 units) {
        uint256 most = _histories[round].maxUnits;
        for (uint256 job; job < 256; ++job) {
            if ((jobs >> job) & 1 == 0) continue;
            units += _claimed[round][job] < most ? _claimed[round][job] : most;
            if (jobs >> job == 1) break;
        }
    }

    function _listing(bytes memory assignments, uint256 at) internal pure returns (uint32 node, uint256 count) {
        for (uint256 i; i < 4; ++i) {
            node = node << 8 | uint8(assignments[at + i]);
        }
        count = uint256(uint8(assignments[at + 4])) + 1;
    }

    function _nodeOf(bytes memory assignments, uint256 job) private pure returns (uint32) {
        uint256 end;
        for (uint256 at; at < assignments.length; at += 5) {
            (uint32 node, uint256 count) = _listing(assignments, at);
            end += count;
            if (job < end) return node;
        }
        return 0;
    }

    function _unitsIn(bytes memory leaves, uint256 at) private pure returns (uint64 units) {
        for (uint256 i = 1; i < 9; ++i) {
            units = units << 8 | uint8(leaves[at + i]);
        }
    }

    function _count(uint256 bits) internal pure returns (uint256 count) {
        for (; bits != 0; bits &= bits - 1) {
            ++count;
        }
    }
}
