// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IAdmin} from "../interfaces/IAdmin.sol";
import {IMarket} from "../interfaces/IMarket.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {Appeal, IRoundsFacts, RoundsTerms, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";

/// What is kept of a round for good.
/// @param docket   where the rest of it is, while it goes on; 0 once it has ended
/// @param bitmaps  of jobs: submitted, accepted, fraud, consumed. A round of at most 64 jobs has all four in the first word,
///                 the first in its lowest quarter; only larger ones, and trials, use the others
struct Record {
    State state;
    uint8 attempt;
    uint8 committee;
    bool revealing;
    uint16 jobs;
    uint16 batches;
    uint16 committed;
    uint16 revealed;
    uint16 abstained;
    uint32 policyVersion;
    uint40 deadline;
    uint48 run;
    uint24 docket;
    uint256[4] bitmaps;
}

/// What a round needs until it ends. A docket is then used again: to overwrite a word of storage costs a quarter of what a fresh
/// one does. So a docket is never cleared, and what an earlier round left in it must never be read: everything up to `eligible`
/// is written whenever one is taken, and each of the others has something that says whether it counts.
/// @param openedAt   a timestamp (until 2106)
/// @param lastSlot   the number of validator slots at opening, less one
/// @param appeals    0 while no job was ever appealed, else one more than the appeals pending
/// @param next       while the docket is free, the one that is taken after it
/// @param appealed   counts where `appeals` is not 0
/// @param committee  counts from the draw on
/// @param digests    of batches; counts below the number of batches
struct Docket {
    uint32 openedAt;
    uint40 closeBlock;
    uint32 drawSeconds;
    uint32 commitSeconds;
    uint32 revealSeconds;
    uint32 challengeSeconds;
    uint8 lastSlot;
    uint8 appealSeats;
    uint16 appeals;
    uint24 next;
    uint128 reserved;
    uint64 maxUnits;
    uint40 openBlock;
    uint16 settledBatches;
    uint128 pricePerUnit;
    uint128 jurorFee;
    bytes32 assignmentsHash;
    uint256 eligible;
    uint256 appealed;
    Committee committee;
    bytes32[256] digests;
}

/// One committee as stored. While voting, `words` holds the commitment of each seat that committed; a reveal replaces it by the
/// vote. A vote is the accept bitmap, with the fraud bitmap in the upper half of the same word where no job above 127 was
/// submitted, else in `fraud`.
struct Committee {
    uint32[15] jurors;
    uint256[15] words;
    uint256[15] fraud;
}

/// @title RoundsBase: what every phase of a round shares
abstract contract RoundsBase is IRoundsFacts {
    using SafeCast for uint256;

    IAdmin public immutable admin;
    IRegistry public immutable registry;
    IMarket public immutable market;
    uint128 internal immutable FRAUD_SLASH;
    uint128 internal immutable ABSENCE_PENALTY;
    uint128 internal immutable OVERTURN_PENALTY;
    uint128 internal immutable APPEAL_BOND;
    uint128 internal immutable APPEAL_BOUNTY;
    uint40 internal immutable MAX_ROUND;

    /// Most jobs of which all bitmaps are kept in one word.
    uint256 private constant NARROW = 64;
    uint256 private constant QUARTER = type(uint64).max;
    /// In place of the digest of a batch that is settled.
    bytes32 internal constant SETTLED = bytes32(uint256(1));

    /// Rounds opened, appeals included; dockets ever made; the free one to be taken next, or 0. One word.
    uint208 private _roundCount;
    uint24 private _docketCount;
    uint24 private _freeDocket;
    mapping(uint256 => Record) internal _rounds;
    mapping(uint256 => Docket) internal _dockets;
    /// @inheritdoc IRoundsFacts
    mapping(uint256 round => mapping(uint8 job => uint256)) public appealOf;
    // Written by `Appealing`, which the other half shares storage with but not code.
    // slither-disable-next-line uninitialized-state
    mapping(uint256 appealed => Appeal) internal _appeals;

    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_) {
        admin = registry_.admin();
        registry = registry_;
        market = market_;
        FRAUD_SLASH = terms_.fraudSlash;
        ABSENCE_PENALTY = terms_.absencePenalty;
        OVERTURN_PENALTY = terms_.overturnPenalty;
        APPEAL_BOND = terms_.appealBond;
        APPEAL_BOUNTY = terms_.appealBounty;
        MAX_ROUND = market_.terms().maxRoundSeconds;
    }

    /// @inheritdoc IRoundsFacts
    function roundCount() external view returns (uint256) {
        return _roundCount;
    }

    /// @inheritdoc IRoundsFacts
    function batchDigest(uint256 round, uint8 batch) external view returns (bytes32) {
        return _digestOf(_rounds[round], batch);
    }

    /// The next number, and a docket for it.
    function _number() internal returns (uint256 round, uint24 docket) {
        round = ++_roundCount;
        docket = _freeDocket;
        if (docket == 0) docket = ++_docketCount;
        else _freeDocket = _dockets[docket].next;
    }

    /// Of a round that ended it is one in which nothing was ever written.
    function _docketOf(Record storage stored) internal view returns (Docket storage) {
        return _dockets[stored.docket];
    }

    /// Nothing of the round is needed any more beyond its record.
    function _discharge(Record storage stored) internal {
        uint24 docket = stored.docket;
        stored.docket = 0;
        _dockets[docket].next = _freeDocket;
        _freeDocket = docket;
    }

    /// Zero where there is no such batch, or it is settled.
    function _digestOf(Record storage stored, uint8 batch) internal view returns (bytes32 digest) {
        if (batch >= stored.batches) return 0;
        digest = _docketOf(stored).digests[batch];
        if (digest == SETTLED) return 0;
    }

    // Bitmaps of jobs

    function _narrow(Record storage stored) private view returns (bool) {
        uint256 jobs = stored.jobs;
        return jobs != 0 && jobs <= NARROW;
    }

    function _submitted(Record storage stored) internal view returns (uint256) {
        uint256 word = stored.bitmaps[0];
        return _narrow(stored) ? word & QUARTER : word;
    }

    function _verdict(Record storage stored) internal view returns (uint256 accepted, uint256 fraud) {
        if (!_narrow(stored)) return (stored.bitmaps[1], stored.bitmaps[2]);
        uint256 word = stored.bitmaps[0];
        return ((word >> 64) & QUARTER, (word >> 128) & QUARTER);
    }

    function _consumed(Record storage stored) internal view returns (uint256) {
        return _narrow(stored) ? stored.bitmaps[0] >> 192 : stored.bitmaps[3];
    }

    /// Before there is a verdict.
    function _setSubmitted(Record storage stored, uint256 jobs) internal {
        stored.bitmaps[0] = jobs;
    }

    /// Within what was submitted.
    function _setVerdict(Record storage stored, uint256 accepted, uint256 fraud) internal {
        if (_narrow(stored)) {
            uint256 word = stored.bitmaps[0];
            stored.bitmaps[0] = (word >> 192 << 192) | (fraud << 128) | (accepted << 64) | (word & QUARTER);
        } else {
            (stored.bitmaps[1], stored.bitmaps[2]) = (accepted, fraud);
        }
    }

    /// Within what was accepted.
    function _consume(Record storage stored, uint256 jobs) internal {
        if (_narrow(stored)) stored.bitmaps[0] |= jobs << 192;
        else stored.bitmaps[3] |= jobs;
    }

    // What every phase needs

    function _in(uint256 round, State state) internal view returns (Record storage stored) {
        stored = _rounds[round];
        if (stored.state != state) revert WrongState(round, stored.state);
    }

    function _requireAssignments(Record storage stored, bytes calldata assignments) internal view {
        (bytes32 given, bytes32 hash) = (keccak256(assignments), _docketOf(stored).assignmentsHash);
        if (given != hash) revert WrongAssignments(given, hash);
    }

    /// Only an appeal lists no jobs.
    function _isAppeal(Record storage stored) internal view returns (bool) {
        return stored.jobs == 0;
    }

    /// When anyone may force the end.
    function _endsBy(Record storage stored) internal view returns (uint256) {
        return uint256(_docketOf(stored).openedAt) + MAX_ROUND;
    }

    function _voteOf(Committee storage committee, uint256 seat, uint256 submitted)
        internal
        view
        returns (uint256 accept, uint256 fraud)
    {
        uint256 word = committee.words[seat];
        return submitted >> 128 == 0 ? (word & type(uint128).max, word >> 128) : (word, committee.fraud[seat]);
    }

    function _has(uint256 seats, uint256 seat) internal pure returns (bool) {
        return (seats >> seat) & 1 == 1;
    }

    function _after(uint256 seconds_) internal view returns (uint40) {
        return (block.timestamp + seconds_).toUint40();
    }

    /// The end of work: the draw's seed comes from this very block, whose hash nobody knows yet, or from a later one.
    function _awaitDraw(Record storage stored) internal returns (uint40 deadline) {
        Docket storage docket = _docketOf(stored);
        deadline = _after(docket.drawSeconds);
        stored.state = State.Closed;
        stored.deadline = deadline;
        docket.closeBlock = block.number.toUint40();
    }

    /// Pays from the round's reserve. The reserve covers every payment by construction.
    function _pay(uint256 round, Record storage stored, uint32 node, address owner, uint256 amount) internal {
        if (amount == 0) return;
        uint128 paid = amount.toUint128();
        _docketOf(stored).reserved -= paid;
        market.pay(stored.run, round, node, owner, paid);
    }

    /// As `_pay`, for many at once.
    function _payAll(uint256 round, Record storage stored, bytes memory payments, uint256 total) internal {
        if (total == 0) return;
        _docketOf(stored).reserved -= total.toUint128();
        market.payAll(stored.run, round, payments);
    }

    /// Ends a round: what is left of its reserve goes back to the run's escrow.
    function _end(uint256 round, Record storage stored, State state) internal {
        Docket storage docket = _docketOf(stored);
        uint128 released = docket.reserved;
        stored.state = state;
        docket.reserved = 0;
        if (state == State.Void) emit RoundVoided(round, released);
        else emit RoundSettled(round, released);
        if (released != 0) market.release(stored.run, round, released);
    }

    /// Frees, of each listed node, the jobs that are not in `settled`.
    function _freeAllBut(uint256 settled, bytes calldata assignments) internal {
        uint256 job = 0;
        uint256 length = Assignments.listings(assignments);
        bytes memory left = Assignments.room(length);
        uint256 nodes = 0;
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = Assignments.read(assignments, i);
            uint256 listed = (type(uint256).max >> (256 - count)) << job;
            uint256 missing = Bitmaps.count(listed & ~settled);
            if (missing != 0) Assignments.write(left, nodes++, node, missing);
            job += count;
        }
        Assignments.cut(left, nodes);
        // Missing jobs are unpaid, so that their owners do not matter here.
        // slither-disable-next-line unused-return
        registry.freeJobs(left);
    }
}
