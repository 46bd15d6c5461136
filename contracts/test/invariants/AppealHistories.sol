// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRoundsFacts, State, Verdict} from "../../src/interfaces/IRounds.sol";
import {Histories, History} from "./Histories.sol";
import {Log} from "./Recorder.sol";

/// @title AppealHistories: rounds and appeals folded from events
abstract contract AppealHistories is Histories {
    uint256 public upheld;
    uint256 public overturned;
    uint256 public undecided;
    uint256 public granted;

    function _foldRounds(Log memory log) internal {
        bytes32 kind = log.topics[0];
        uint256 round = uint256(log.topics[1]);
        if (kind == IRoundsFacts.VoteRevealed.selector) return _reveal(log, round);
        if (kind == IRoundsFacts.VoteCommitted.selector) {
            ++_committed[round][_histories[round].attempt];
            return;
        }
        if (kind == IRoundsFacts.Submitted.selector) return _submit(log, round);
        if (kind == IRoundsFacts.SubmissionSettled.selector) return _settle(log, round);
        if (kind == IRoundsFacts.JurorSettled.selector) return _juror(log, round);
        if (kind == IRoundsFacts.RoundOpened.selector) return _open(log, round);
        if (kind == IRoundsFacts.RoundTallied.selector) return _tally(log, round);
        if (kind == IRoundsFacts.CommitteeDrawn.selector) return _draw(log, round);
        if (kind == IRoundsFacts.CommitteeRedrawn.selector) return _redraw(round);
        if (kind == IRoundsFacts.RoundClosed.selector) return _move(round, State.Closed);
        if (kind == IRoundsFacts.RoundVoided.selector) return _void(round);
        if (kind == IRoundsFacts.RoundSettled.selector) return _finish(round);
        if (kind == IRoundsFacts.JobsFreed.selector) return _freeAllBut(round, 0);
        if (kind == IRoundsFacts.JobsConsumed.selector) return _consume(round, _first(log));
        if (kind == IRoundsFacts.JobsTainted.selector) _histories[round].tainted |= _first(log);
        if (kind == IRoundsFacts.AppealOpened.selector) return _appeal(log, round);
        if (kind == IRoundsFacts.AppealDecided.selector) return _decide(log, round, uint256(log.topics[2]));
        if (kind == IRoundsFacts.AppealedJobSettled.selector) return _settleAppealed(log, round);
    }

    function _void(uint256 round) private {
        _histories[round].accepted = 0;
        _histories[round].fraud = 0;
        _move(round, State.Void);
    }

    function _appeal(Log memory log, uint256 appealed) private {
        (uint8 job,,,, uint256 deposit,) = abi.decode(log.data, (uint8, Verdict, uint32, uint64, uint256, uint40));
        uint256 round = uint256(log.topics[2]);
        History storage parent = _histories[round];
        uint256 bit = uint256(1) << job;
        bool inTime = parent.state == State.Tallied && block.timestamp < parent.deadline;
        _hold("appeals come within their window", inTime);
        _hold("one appeal a job", parent.appealed & bit == 0 && parent.settled & bit == 0);
        parent.appealed |= bit;
        ++parent.appeals;
        History storage appealRound = _histories[appealed];
        appealRound.parent = round;
        appealRound.submitted = bit;
        appealRound.state = State.Closed;
        appealRound.committee = ROUNDS.roundOf(appealed).committee;
        uint256 most = appealRound.committee + 3 * ((appealRound.committee - 1) / 2);
        uint256 fee = parent.jurorFee;
        appealRound.jurorFee = fee;
        _hold("a deposit covers bond and fees", deposit == ROUNDS.terms().appealBond + most * fee);
    }

    function _settleAppealed(Log memory log, uint256 round) private {
        (uint8 job, Verdict verdict, uint256 units, uint256 paid) =
            abi.decode(log.data, (uint8, Verdict, uint256, uint256));
        uint32 node = uint32(uint256(log.topics[2]));
        uint256 bit = uint256(1) << job;
        History storage parent = _histories[round];
        bool both = verdict == Verdict.Unavailable;
        parent.accepted = both || verdict == Verdict.Accepted ? parent.accepted | bit : parent.accepted & ~bit;
        parent.fraud = both || verdict == Verdict.Fraud ? parent.fraud | bit : parent.fraud & ~bit;
        parent.everAccepted |= parent.accepted & ~parent.fraud;
        _free(round, node, bit);
        if (verdict == Verdict.Accepted) {
            // An acceptance that its appeal leaves standing is the first committee's.
            uint256 appealed = ROUNDS.appealOf(round, job);
            _credit(round, ROUNDS.appealAt(appealed).against == verdict ? round : appealed, bit);
            _hold("pay is units by price", units == _unitsOf(round, bit));
        }
        _hold("pay is units by price", paid == units * parent.pricePerUnit);
        _hold("only accepted work is paid", verdict == Verdict.Accepted || paid == 0);
        if (verdict == Verdict.Fraud) _expectSlashes(node, 1);
    }

    function _decide(Log memory log, uint256 appealed, uint256 round) private {
        (, Verdict verdict, bool decided, uint256 fees, uint256 awarded,) =
            abi.decode(log.data, (uint8, Verdict, bool, uint256, uint256, uint256));
        --_histories[round].appeals;
        uint256 taken = _overturned[round];
        _overturned[round] = 0;
        uint256 repaid = fees < taken ? fees : taken;
        _hold("a bounty is under half", awarded == 0 || (awarded >= repaid && 2 * (awarded - repaid) < taken));
        _hold("a bounty is under its cap", awarded <= repaid + ROUNDS.terms().appealBounty);
        bool stands = verdict == ROUNDS.appealAt(appealed).against;
        _hold("only a decision makes jurors pay", taken == 0 || (decided && verdict != Verdict.Unavailable));
        if (!decided) ++undecided;
        else if (stands) ++upheld;
        else ++overturned;
        if (awarded != 0) ++granted;
    }
}
