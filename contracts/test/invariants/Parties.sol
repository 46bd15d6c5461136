// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IJudgement, Round, State} from "../../src/interfaces/IRounds.sol";
import {Appellants} from "./Appellants.sol";
import {Buyers} from "./Buyers.sol";
import {Endings} from "./Endings.sol";
import {Governors} from "./Governors.sol";
import {Intruders} from "./Intruders.sol";
import {Jurors} from "./Jurors.sol";
import {Owners} from "./Owners.sol";
import {Providers} from "./Providers.sol";

/// @title Parties: everyone in the market, honest and not, one verb a call
/// @notice A call that finds nothing to do reverts and changes nothing. `advance` and the like do several steps, so that runs
/// reach every state.
contract Parties is Owners, Buyers, Providers, Jurors, Appellants, Endings, Governors, Intruders {
    function _bring(State state, uint256 pick) internal override returns (uint256 round) {
        if (admin.paused()) unpause();
        restore(pick);
        serveAll();
        open(pick);
        round = rounds.roundCount();
        if (state == State.Void) {
            _warpTo(_endsBy(rounds.roundOf(round)) + 1);
            expireOne(round);
        }
        for (uint256 i; i < 8 && rounds.roundOf(round).state < state; ++i) {
            _step(round, 0);
        }
        require(rounds.roundOf(round).state == state, "not reached");
    }

    function expireOne(uint256 round) public told {
        _due("expire", stranger, address(rounds), abi.encodeCall(IJudgement.expire, (round)));
    }

    /// A committee votes at once, or as many of it as `mood` lets.
    function voteTogether(uint256 pick, uint256 mood) external {
        vote(_roundIn(State.Voting, pick), mood);
        _count("vote together");
    }

    /// Everyone does their part on one of the newest rounds.
    function advance(uint256 pick, uint256 mood) external {
        uint256 count = rounds.roundCount();
        uint256 round = count == 0 ? _bring(State.Open, pick) : count - pick % (count < 6 ? count : 6);
        for (uint256 i; i < 3 + mood % 5; ++i) {
            _step(round, uint256(keccak256(abi.encode(mood, i))));
        }
        _count("advance");
    }

    /// A new round, taken up to its verdict.
    function judgeNext(uint256 pick, uint256 mood) external {
        if (admin.paused()) unpause();
        restore(pick);
        serveAll();
        open(pick);
        uint256 round = rounds.roundCount();
        for (uint256 i; i < 5 && rounds.roundOf(round).state < State.Tallied; ++i) {
            _step(round, uint256(keccak256(abi.encode(mood, i))));
        }
        _count("judge next");
    }

    /// An appeal against one of the newest verdicts, taken to its end.
    function appealAndJudge(uint256 pick, uint256 mood) external {
        appealOne(_appealable(pick), pick / 8);
        uint256 appealRound = rounds.roundCount();
        for (uint256 i; i < 6; ++i) {
            _step(appealRound, uint256(keccak256(abi.encode(mood, i))));
        }
        _count("appeal and judge");
    }

    /// The other jobs do not wait for the appeal; the round's end does.
    function settleBeforeTheAppeal(uint256 pick, uint256 mood) external {
        uint256 round = _appealable(pick);
        appealOne(round, pick / 8);
        uint256 appealRound = rounds.roundCount();
        _step(appealRound, mood);
        vote(appealRound, mood);
        for (uint256 i = rounds.roundOf(round).batches + 1; i > 0; --i) {
            tickOnce(round);
        }
        for (uint256 i; i < 4; ++i) {
            tickOnce(appealRound);
        }
        tickOnce(round);
        _count("settle before the appeal");
    }

    /// A verdict within its challenge window, by a run that offers appeals.
    function _appealable(uint256 pick) private returns (uint256 round) {
        round = _roundIn(State.Tallied, pick);
        Round memory stored = rounds.roundOf(round);
        bool open_ = stored.appealSeats != 0 && block.timestamp < stored.deadline;
        if (open_ && stored.submitted & ~stored.appealed != 0) return round;
        // The second run or the third.
        uint256 count = market.runCount();
        return _bring(State.Tallied, pick / count % type(uint64).max * count + 1 + pick % 2);
    }

    function appealOne(uint256 round, uint256 which) public told {
        require(_appealAny(round, which), "no appeal");
    }

    function tickOnce(uint256 round) public told {
        State state = rounds.roundOf(round).state;
        if (state == State.Open) _close(round);
        else if (state == State.Closed) _draw(round);
        else if (state == State.Voting) _tally(round);
        else if (state == State.Tallied) _settle(round);
        else if (state == State.Void && rounds.roundOf(round).assignmentsHash != 0) _free(round);
    }

    /// `mood` 0 is everyone at their best.
    function _step(uint256 round, uint256 mood) private {
        Round memory stored = rounds.roundOf(round);
        bool late = block.timestamp > stored.deadline;
        if (stored.state == State.Open && stored.batches < 2 && !late && !_complete(stored)) {
            return submit(round, mood % 4 == 1 ? mood / 4 % 6 : 0, mood / 32);
        }
        if (stored.state == State.Voting && stored.committed == 0 && !late) {
            vote(round, mood / 4);
            // The last vote to be revealed brings the verdict, which stays for others to appeal.
            if (rounds.roundOf(round).state != State.Voting) return;
        }
        tickOnce(round);
    }

    function _complete(Round memory stored) private pure returns (bool) {
        return stored.submitted == type(uint256).max >> (256 - stored.jobs);
    }
}
