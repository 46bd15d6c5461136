// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Cause} from "../interfaces/IRegistry.sol";
import {IJudgement, State} from "../interfaces/IRounds.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Committees} from "../libraries/Committees.sol";
import {Draw} from "../libraries/Draw.sol";
import {Committee, Record, RoundStorage, RoundsBase} from "./RoundsBase.sol";

/// @title Judging
/// @notice From the draw of a committee to its verdict.
abstract contract Judging is IJudgement, RoundsBase {
    using SafeCast for uint256;

    /// The single reason byte that marks a zero vote as an abstention.
    bytes1 private constant ABSTAIN = 0xff;

    /// A revealed vote without its reasons, in memory because the stack is too small for it.
    struct Vote {
        uint256 accept;
        uint256 fraud;
        bytes32 evidenceRoot;
        bytes32 salt;
    }

    /// @inheritdoc IJudgement
    function draw(uint256 round) external {
        Record storage stored = _requireState(round, State.Closed);
        if (block.timestamp > stored.deadline || block.timestamp > _endsBy(stored)) return _fail(round, stored);
        RoundStorage storage live = _storageOf(stored);
        (uint256 seedBlock, bytes32 seed) = Draw.seedOf(live.closeBlock);
        if (seed == 0) revert SeedNotReady(seedBlock);
        uint8 attempt = stored.attempt;
        uint32[] memory jurors = _seat(live, seed, attempt, stored.committee);
        uint40 deadline = _after(live.commitSeconds);
        stored.state = State.Voting;
        stored.deadline = deadline;
        emit CommitteeDrawn(round, attempt, seedBlock.toUint64(), seed, jurors, deadline);
    }

    /// @inheritdoc IJudgement
    function commit(uint256 round, bytes32 commitment) external {
        Record storage stored = _requireState(round, State.Voting);
        (Committee storage committee, uint256 seat, uint32 juror) = _seatOf(round, stored, msg.sender);
        if (_has(stored.committed, seat)) revert AlreadyCommitted(juror);
        if (stored.revealing || block.timestamp > stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        committee.words[seat] = uint256(commitment);
        stored.committed = _with(stored.committed, seat);
        emit VoteCommitted(round, juror, stored.attempt, commitment);
        if (stored.committed == _all(stored)) _startRevealing(round, stored, _after(_storageOf(stored).revealSeconds));
    }

    /// @inheritdoc IJudgement
    function reveal(
        uint256 round,
        uint256 accept,
        uint256 fraud,
        bytes calldata reasons,
        bytes32 evidenceRoot,
        bytes32 salt
    ) external {
        _reveal(round, Vote(accept, fraud, evidenceRoot, salt), reasons);
    }

    /// @inheritdoc IJudgement
    function tally(uint256 round) external {
        Record storage stored = _requireState(round, State.Voting);
        _requireVoted(stored);
        _tally(round, stored);
    }

    /// @inheritdoc IJudgement
    function expire(uint256 round) external {
        Record storage stored = _rounds[round];
        State state = stored.state;
        if (state != State.Open && state != State.Closed && state != State.Voting) revert WrongState(round, state);
        if (block.timestamp <= _endsBy(stored)) revert TooEarly(_endsBy(stored), block.timestamp);
        _fail(round, stored);
    }

    function _seat(RoundStorage storage live, bytes32 seed, uint8 attempt, uint256 seats)
        private
        returns (uint32[] memory jurors)
    {
        uint8[] memory slots = Draw.slots(seed, attempt, uint256(live.lastSlot) + 1, live.eligible, seats);
        jurors = new uint32[](slots.length);
        for (uint256 seat; seat < slots.length; ++seat) {
            jurors[seat] = registry.nodeAt(slots[seat]);
            live.committee.jurors[seat] = jurors[seat];
        }
    }

    function _tally(uint256 round, Record storage stored) private {
        Committee storage committee = _storageOf(stored).committee;
        uint256 quorum = Committees.quorum(stored.committee);
        bool decided = Bitmaps.count(_voting(stored)) >= quorum;
        // Without a quorum the windows may have been at fault, so that only a withheld reveal is fined.
        _penalise(round, stored, committee, (decided ? _all(stored) : stored.committed) & ~stored.revealed);
        if (!decided) return _failQuorum(round, stored, committee);
        (uint256 accepted, uint256 fraud) = _majority(stored, committee, quorum);
        uint40 deadline = _after(_storageOf(stored).challengeSeconds);
        _setVerdict(stored, accepted, fraud);
        stored.state = State.Tallied;
        stored.deadline = deadline;
        emit RoundTallied(round, stored.attempt, accepted, fraud, deadline);
        if (_isAppeal(stored)) _concludeAppeal(round, true);
    }

    /// Ends a round without a verdict.
    function _fail(uint256 round, Record storage stored) private {
        if (_isAppeal(stored)) _concludeAppeal(round, false);
        else _end(round, stored, State.Void);
    }

    /// Carries out the outcome of an appeal.
    /// @param decided  true if its committee reached a verdict
    function _concludeAppeal(uint256 appealed, bool decided) internal virtual;

    function _startRevealing(uint256 round, Record storage stored, uint40 deadline) private {
        stored.revealing = true;
        stored.deadline = deadline;
        emit RevealStarted(round, stored.attempt, deadline);
    }

    function _requireRevealing(uint256 round, Record storage stored) private {
        uint40 deadline = stored.deadline;
        if (!stored.revealing) {
            if (block.timestamp <= deadline) revert TooEarly(deadline, block.timestamp);
            // Counted from the commit deadline, so that a late first reveal does not extend the window.
            deadline += _storageOf(stored).revealSeconds;
            _startRevealing(round, stored, deadline);
        }
        if (block.timestamp > deadline) revert TooLate(deadline, block.timestamp);
    }

    /// Reverts while any seat may still commit or reveal.
    function _requireVoted(Record storage stored) private view {
        uint256 deadline = stored.deadline;
        if (stored.revealing) {
            if (stored.revealed == stored.committed) return;
        } else if (stored.committed != 0) {
            deadline += _storageOf(stored).revealSeconds;
        }
        if (block.timestamp <= deadline) revert TooEarly(deadline, block.timestamp);
    }

    function _reveal(uint256 round, Vote memory vote, bytes calldata reasons) private {
        Record storage stored = _requireState(round, State.Voting);
        _requireRevealing(round, stored);
        (Committee storage committee, uint256 seat, uint32 juror) = _seatOf(round, stored, msg.sender);
        if (!_has(stored.committed, seat)) revert NotCommitted(juror);
        if (_has(stored.revealed, seat)) revert AlreadyRevealed(juror);
        bytes32 given = _commitment(round, stored.attempt, juror, vote, keccak256(reasons));
        if (given != bytes32(committee.words[seat])) revert WrongReveal(given, bytes32(committee.words[seat]));
        _record(stored, committee, seat, vote, reasons);
        _emitVoteRevealed(round, juror, stored.attempt, vote, reasons);
        // Tallying an appeal moves tokens. A reveal must not depend on a token transfer, so `tally` is a separate call.
        if (stored.revealed == stored.committed && !_isAppeal(stored)) _tally(round, stored);
    }

    function _commitment(uint256 round, uint8 attempt, uint32 juror, Vote memory vote, bytes32 reasonsHash)
        private
        view
        returns (bytes32)
    {
        bytes memory place = abi.encode(block.chainid, address(this), round, attempt, juror);
        bytes memory content = abi.encode(vote.accept, vote.fraud, reasonsHash, vote.evidenceRoot, vote.salt);
        // All values are static words, so the concatenation equals abi.encode of all ten.
        return keccak256(bytes.concat(place, content));
    }

    function _emitVoteRevealed(uint256 round, uint32 juror, uint8 attempt, Vote memory vote, bytes calldata reasons)
        private
    {
        emit VoteRevealed(round, juror, attempt, vote.accept, vote.fraud, reasons, vote.evidenceRoot, vote.salt);
    }

    /// Stores a revealed vote, limited to the submitted jobs.
    function _record(
        Record storage stored,
        Committee storage committee,
        uint256 seat,
        Vote memory vote,
        bytes calldata reasons
    ) private {
        (uint256 accept, uint256 fraud) = (vote.accept, vote.fraud);
        uint256 submitted = _submitted(stored);
        if (accept == 0 && fraud == 0 && reasons.length == 1 && reasons[0] == ABSTAIN) {
            stored.abstained = _with(stored.abstained, seat);
        } else {
            uint256 unaccepted = Bitmaps.count(submitted & ~(accept & ~fraud));
            if (reasons.length != unaccepted) revert WrongReasons(reasons.length, unaccepted);
        }
        stored.revealed = _with(stored.revealed, seat);
        (accept, fraud) = (accept & submitted, fraud & submitted);
        if (submitted >> 128 == 0) accept |= fraud << 128;
        else committee.fraud[seat] = fraud;
        committee.words[seat] = accept;
    }

    /// Counts a strike against every seat that did not vote, and fines those in `fined`.
    function _penalise(uint256 round, Record storage stored, Committee storage committee, uint256 fined) private {
        uint256 idle = _all(stored) & ~_voting(stored);
        for (uint256 seat; idle >> seat != 0; ++seat) {
            if (!_has(idle, seat)) continue;
            market.strike(stored.run, round, committee.jurors[seat]);
            // The registry's event reports the amount taken.
            // slither-disable-next-line unused-return
            if (_has(fined, seat)) registry.slash(committee.jurors[seat], round, Cause.Absence, ABSENCE_PENALTY);
        }
    }

    /// Counts the three verdicts that a vote can name apart; each is a majority of its own.
    function _majority(Record storage stored, Committee storage committee, uint256 quorum)
        private
        view
        returns (uint256 accepted, uint256 fraud)
    {
        uint256 submitted = _submitted(stored);
        uint256[] memory accepts = new uint256[](stored.committee);
        uint256[] memory frauds = new uint256[](stored.committee);
        uint256[] memory both = new uint256[](stored.committee);
        for (uint256 seat; seat < both.length; ++seat) {
            // The word of an unrevealed seat is its commitment. An abstention is stored as zeros.
            if (!_has(stored.revealed, seat)) continue;
            (uint256 accept, uint256 against) = _voteOf(committee, seat, submitted);
            (accepts[seat], frauds[seat], both[seat]) = (accept & ~against, against & ~accept, accept & against);
        }
        uint256 unavailable = Bitmaps.atLeast(both, quorum);
        return (Bitmaps.atLeast(accepts, quorum) | unavailable, Bitmaps.atLeast(frauds, quorum) | unavailable);
    }

    /// Pays every vote that did not abstain the full fee, as there is no verdict to agree with. Then redraws without
    /// the seats that did not vote, or ends the round.
    function _failQuorum(uint256 round, Record storage stored, Committee storage committee) private {
        uint256 fee = _storageOf(stored).jurorFee;
        uint256 voting = _voting(stored);
        for (uint256 seat; voting >> seat != 0; ++seat) {
            if (!_has(voting, seat)) continue;
            uint32 juror = committee.jurors[seat];
            emit JurorSettled(round, juror, 0, fee);
            _pay(round, stored, juror, registry.ownerOf(juror), fee);
        }
        if (stored.attempt + 1 == Committees.DRAWS) return _fail(round, stored);
        _exclude(stored, committee, _all(stored) & ~voting);
        stored.attempt += 1;
        stored.revealing = false;
        (stored.committed, stored.revealed, stored.abstained) = (0, 0, 0);
        emit CommitteeRedrawn(round, stored.attempt, _awaitDraw(stored));
    }

    /// Makes the validators in `seats` ineligible for this round, unless too few would remain for the committees that
    /// it may still need.
    function _exclude(Record storage stored, Committee storage committee, uint256 seats) private {
        RoundStorage storage live = _storageOf(stored);
        uint256 eligible = live.eligible & ~_slotsOf(committee, seats);
        uint256 needed = uint256(stored.committee) + live.appealSeats;
        if (Bitmaps.count(eligible) >= needed) live.eligible = eligible;
    }

    function _seatOf(uint256 round, Record storage stored, address key)
        private
        view
        returns (Committee storage committee, uint256 seat, uint32 juror)
    {
        juror = registry.nodeByKey(key);
        committee = _storageOf(stored).committee;
        uint256 seats = stored.committee;
        // An unbound key maps to node 0, as an empty seat would: search drawn seats only.
        for (; seat < seats; ++seat) {
            if (committee.jurors[seat] == juror) return (committee, seat, juror);
        }
        revert NotSeated(round, juror);
    }

    function _with(uint16 seats, uint256 seat) private pure returns (uint16) {
        return seats | (uint256(1) << seat).toUint16();
    }
}
