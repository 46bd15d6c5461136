// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IJudgement, IRoundsFacts, Round, Seat, State} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Jurors: honest, mistaken, colluding, copying, silent
abstract contract Jurors is World {
    struct Vote {
        uint256 accept;
        uint256 fraud;
        bytes reasons;
    }

    mapping(uint256 round => mapping(uint256 attempt => mapping(uint32 juror => Vote))) private _votes;

    function commit(uint256 pick, uint256 seat, uint256 mood) external told {
        uint256 round = _roundIn(State.Voting, pick);
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            uint32 juror = seats[(seat % 16 + i) % seats.length].node;
            if (_mayCommit(round, juror)) return _commit(round, juror, mood);
        }
        require(false, "nobody to commit");
    }

    function reveal(uint256 pick, uint256 seat) external told {
        uint256 round = _roundIn(State.Voting, pick);
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            if (_mayCommit(round, seats[i].node)) _commit(round, seats[i].node, pick);
        }
        seats = rounds.seatsOf(round);
        if (!_revealing(round)) _warpTo(uint256(rounds.roundOf(round).deadline) + 1);
        for (uint256 i; i < seats.length; ++i) {
            Seat memory chosen = seats[(seat % 16 + i) % seats.length];
            if (chosen.commitment == 0 || chosen.revealed || registry.keyOf(chosen.node) == address(0)) continue;
            return _reveal(round, chosen.node);
        }
        require(false, "nobody to reveal");
    }

    /// Copies another's commitment; it cannot be opened under its own name.
    function copy(uint256 pick) external told {
        uint256 round = _roundIn(State.Voting, pick);
        Seat[] memory seats = rounds.seatsOf(round);
        require(seats.length > 1, "nobody to copy");
        (uint32 author, uint32 thief) = (seats[0].node, seats[1].node);
        if (_mayCommit(round, author)) _commit(round, author, pick);
        bytes32 commitment = rounds.seatsOf(round)[0].commitment;
        require(commitment != 0 && _mayCommit(round, thief), "nothing to copy");
        address key = registry.keyOf(thief);
        _do("copy", key, address(rounds), abi.encodeCall(IJudgement.commit, (round, commitment)));
        if (!_revealing(round)) _warpTo(uint256(rounds.roundOf(round).deadline) + 1);
        bytes memory call = _opening(round, _votes[round][rounds.roundOf(round).attempt][author]);
        _refused("reveal a copy", key, address(rounds), call, IRoundsFacts.WrongReveal.selector);
    }

    /// A whole committee votes at once, so that rounds get past voting often enough. `mood` decides each vote, or its absence.
    function vote(uint256 round, uint256 mood) public told {
        uint32[] memory jurors = jurorsOf(round);
        require(rounds.roundOf(round).committed == 0, "begun");
        for (uint256 i; i < jurors.length; ++i) {
            if (_mayCommit(round, jurors[i]) && !_silent(mood, i)) _commit(round, jurors[i], mood);
        }
        if (rounds.roundOf(round).committed == 0) return;
        if (!rounds.roundOf(round).revealing) _warpTo(rounds.roundOf(round).deadline + 1);
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            bool willing = seats[i].commitment != 0 && (mood >> 40) % 16 != i + 1;
            if (willing && registry.keyOf(seats[i].node) != address(0)) _reveal(round, seats[i].node);
        }
    }

    /// Three committees in four are complete; in the fourth each juror is absent half of the time.
    function _silent(uint256 mood, uint256 seat) private pure returns (bool) {
        return (mood >> 32) % 4 == 1 && (mood >> (48 + seat)) & 1 == 1;
    }

    function _commit(uint256 round, uint32 juror, uint256 mood) private {
        Round memory stored = rounds.roundOf(round);
        Vote memory cast = _judge(round, stored.submitted, juror, mood);
        _votes[round][stored.attempt][juror] = cast;
        bytes32 commitment = commitmentOf(round, juror, cast.accept, cast.fraud, cast.reasons);
        bytes memory call = abi.encodeCall(IJudgement.commit, (round, commitment));
        _due("commit", registry.keyOf(juror), address(rounds), call);
        _refused("commit twice", registry.keyOf(juror), address(rounds), call);
    }

    function _reveal(uint256 round, uint32 juror) private {
        Round memory stored = rounds.roundOf(round);
        Vote memory cast = _votes[round][stored.attempt][juror];
        require(cast.reasons.length != 0 || cast.accept != 0, "not its vote");
        bytes memory call = _opening(round, cast);
        bool abstains = cast.reasons.length == 1 && cast.reasons[0] == 0xff;
        uint256 until = stored.revealing ? stored.deadline : uint256(stored.deadline) + stored.revealSeconds;
        address key = registry.keyOf(juror);
        if (block.timestamp > until) {
            return _refused("reveal late", key, address(rounds), call, IRoundsFacts.TooLate.selector);
        }
        _due(abstains ? bytes32("abstain") : bytes32("reveal"), key, address(rounds), call);
        _refused("reveal twice", key, address(rounds), call);
    }

    function _opening(uint256 round, Vote memory cast) private pure returns (bytes memory) {
        return abi.encodeCall(IJudgement.reveal, (round, cast.accept, cast.fraud, cast.reasons, EVIDENCE, SALT));
    }

    /// Mostly the truth, which follows from the round and its jobs; else a lie that a whole committee tells, all accepted, all
    /// fraud, one bit off, or an abstention. Bits of jobs not submitted are set too: they must not count.
    function _judge(uint256 round, uint256 submitted, uint32 juror, uint256 mood)
        private
        view
        returns (Vote memory cast)
    {
        uint256 parent = rounds.appealAt(round).round;
        uint256 truth = uint256(keccak256(abi.encode("truth", parent == 0 ? round : parent)));
        uint256 kind = mood % 8;
        if (kind == 7 || (mood >> (64 + juror % 16)) & 7 == 7) return Vote(0, 0, hex"ff");
        if (kind < 3) cast.accept = truth;
        else if (kind == 3) cast.accept = ~truth;
        else if (kind == 4) cast.accept = type(uint256).max;
        else if (kind == 5) cast.accept = 0;
        else cast.accept = truth ^ (uint256(1) << (juror % 4));
        // Jobs not accepted are fraud or void, as decided for the whole committee or for this juror.
        cast.fraud = kind == 6 ? ~cast.accept & uint256(keccak256(abi.encode(juror, mood))) : 0;
        if (kind != 6 && (mood >> 8) % 3 != 1) {
            cast.fraud = ~cast.accept & uint256(keccak256(abi.encode("fraud", round)));
        }
        if (kind == 5) cast.fraud = type(uint256).max;
        // A committee that cannot fetch some jobs votes both bits for these.
        if ((mood >> 16) % 3 == 2) {
            uint256 missing = ~uint256(keccak256(abi.encode("held", round))) | uint256(keccak256(abi.encode(round)));
            (cast.accept, cast.fraud) = (cast.accept | missing, cast.fraud | missing);
        }
        for (uint256 left = submitted & ~(cast.accept & ~cast.fraud); left != 0; left &= left - 1) {
            cast.reasons = bytes.concat(cast.reasons, hex"05");
        }
    }

    function _mayCommit(uint256 round, uint32 juror) private view returns (bool) {
        Round memory stored = rounds.roundOf(round);
        if (stored.revealing || block.timestamp > stored.deadline || registry.keyOf(juror) == address(0)) return false;
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            if (seats[i].node == juror) return (stored.committed >> i) & 1 == 0;
        }
        return false;
    }

    function _revealing(uint256 round) private view returns (bool) {
        Round memory stored = rounds.roundOf(round);
        return stored.revealing || block.timestamp > stored.deadline;
    }
}
