// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IAdmin} from "../interfaces/IAdmin.sol";
import {IMarket} from "../interfaces/IMarket.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {Appeal, IRoundsFacts, RoundsTerms, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";

/// The permanent record of a round.
/// @param storageId  index of its `RoundStorage` while the round is live; 0 once it has ended
/// @param bitmaps    job bitmaps: submitted, accepted, fraud, consumed. A round of at most 64 jobs packs all four into
///                   the first word, submitted in the lowest quarter; larger rounds and appeals use one word each
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
    uint24 storageId;
    uint256[4] bitmaps;
}

/// The fields a round needs only while it is live. Storage of an ended round is reused, because overwriting a word
/// costs a quarter of what writing a fresh one does. It is never cleared, so values of an earlier round must never be
/// read: the fields up to `eligible` are written on every reuse, and each later field is valid only under the condition
/// given here.
/// @param openedAt   timestamp in seconds (until 2106)
/// @param lastSlot   number of validator slots at opening, minus one
/// @param appeals    0 if no job was ever appealed, otherwise pending appeals plus one
/// @param next       valid while this storage is free: the next entry of the free list, or 0
/// @param appealed   valid if `appeals` is not 0
/// @param committee  valid from the draw on
/// @param digests    batch digests, valid below the number of batches
struct RoundStorage {
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

/// A committee as stored. While voting, `words` holds the commitment of each seat that committed; a reveal replaces it
/// with the vote. A vote is the accept bitmap. The fraud bitmap is in the upper half of the same word if no job above
/// 127 was submitted, otherwise in `fraud`.
struct Committee {
    uint32[15] jurors;
    uint256[15] words;
    uint256[15] fraud;
}

/// @title RoundsBase
/// @notice State and helpers shared by every phase of a round.
abstract contract RoundsBase is IRoundsFacts {
    using SafeCast for uint256;

    /// @inheritdoc IRoundsFacts
    IAdmin public immutable admin;
    /// @inheritdoc IRoundsFacts
    IRegistry public immutable registry;
    /// @inheritdoc IRoundsFacts
    IMarket public immutable market;
    uint128 internal immutable FRAUD_SLASH;
    uint128 internal immutable ABSENCE_PENALTY;
    uint128 internal immutable OVERTURN_PENALTY;
    uint128 internal immutable APPEAL_BOND;
    uint128 internal immutable APPEAL_BOUNTY;
    uint40 internal immutable MAX_ROUND;

    /// Maximum jobs of a round whose four bitmaps share one word.
    uint256 private constant NARROW = 64;
    uint256 private constant QUARTER = type(uint64).max;
    /// Replaces the digest of a settled batch.
    bytes32 internal constant SETTLED = bytes32(uint256(1));

    /// Number of rounds opened, appeals included. Shares one word with the next two.
    uint208 private _roundCount;
    /// Number of `RoundStorage` entries ever created.
    uint24 private _storageCount;
    /// Head of the free list, or 0.
    uint24 private _freeStorage;
    mapping(uint256 => Record) internal _rounds;
    mapping(uint256 => RoundStorage) internal _storages;
    /// @inheritdoc IRoundsFacts
    mapping(uint256 round => mapping(uint8 job => uint256)) public appealOf;
    // Written by `Appealing`, which shares storage, but no code, with `Rounds`.
    // slither-disable-next-line uninitialized-state
    mapping(uint256 appealed => Appeal) internal _appeals;

    /// @dev Admin and the longest round are read from the registry and the market.
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_) {
        uint256 bondPerJob = registry_.terms().bondPerJob;
        if (terms_.fraudSlash > bondPerJob) revert SlashAboveBond(terms_.fraudSlash, bondPerJob);
        if (terms_.appealBounty > terms_.fraudSlash) revert BountyAboveSlash(terms_.appealBounty, terms_.fraudSlash);
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

    /// Returns the next round number and storage for it: a free entry if there is one, otherwise a new one.
    function _nextRound() internal returns (uint256 round, uint24 storageId) {
        round = ++_roundCount;
        storageId = _freeStorage;
        if (storageId == 0) storageId = ++_storageCount;
        else _freeStorage = _storages[storageId].next;
    }

    /// Storage of a live round. Ended rounds map to entry 0, which is never written.
    function _storageOf(Record storage stored) internal view returns (RoundStorage storage) {
        return _storages[stored.storageId];
    }

    /// Returns a round's storage to the free list; only its record remains.
    function _releaseStorage(Record storage stored) internal {
        uint24 storageId = stored.storageId;
        stored.storageId = 0;
        _storages[storageId].next = _freeStorage;
        _freeStorage = storageId;
    }

    /// Zero if the batch does not exist or is settled.
    function _digestOf(Record storage stored, uint8 batch) internal view returns (bytes32 digest) {
        if (batch >= stored.batches) return 0;
        digest = _storageOf(stored).digests[batch];
        if (digest == SETTLED) return 0;
    }

    // Job bitmaps

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

    /// Called only before a verdict, as it overwrites the whole word.
    function _setSubmitted(Record storage stored, uint256 jobs) internal {
        stored.bitmaps[0] = jobs;
    }

    /// `accepted` and `fraud` are subsets of the submitted jobs.
    function _setVerdict(Record storage stored, uint256 accepted, uint256 fraud) internal {
        if (_narrow(stored)) {
            uint256 word = stored.bitmaps[0];
            stored.bitmaps[0] = (word >> 192 << 192) | (fraud << 128) | (accepted << 64) | (word & QUARTER);
        } else {
            (stored.bitmaps[1], stored.bitmaps[2]) = (accepted, fraud);
        }
    }

    /// `jobs` is a subset of the accepted jobs.
    function _consume(Record storage stored, uint256 jobs) internal {
        if (_narrow(stored)) stored.bitmaps[0] |= jobs << 192;
        else stored.bitmaps[3] |= jobs;
    }

    // Shared helpers

    function _requireState(uint256 round, State state) internal view returns (Record storage stored) {
        stored = _rounds[round];
        if (stored.state != state) revert WrongState(round, stored.state);
    }

    function _requireAssignments(Record storage stored, bytes calldata assignments) internal view {
        (bytes32 given, bytes32 hash) = (keccak256(assignments), _storageOf(stored).assignmentsHash);
        if (given != hash) revert WrongAssignments(given, hash);
    }

    /// An appeal is the only round that lists no jobs.
    function _isAppeal(Record storage stored) internal view returns (bool) {
        return stored.jobs == 0;
    }

    /// Timestamp after which anyone may expire the round.
    function _endsBy(Record storage stored) internal view returns (uint256) {
        return uint256(_storageOf(stored).openedAt) + MAX_ROUND;
    }

    function _voteOf(Committee storage committee, uint256 seat, uint256 submitted)
        internal
        view
        returns (uint256 accept, uint256 fraud)
    {
        uint256 word = committee.words[seat];
        return submitted >> 128 == 0 ? (word & type(uint128).max, word >> 128) : (word, committee.fraud[seat]);
    }

    /// Bitmap of all seats.
    function _all(Record storage stored) internal view returns (uint16) {
        return type(uint16).max >> (16 - stored.committee);
    }

    /// Bitmap of the seats that revealed a vote and did not abstain.
    function _voting(Record storage stored) internal view returns (uint256) {
        return stored.revealed & ~stored.abstained;
    }

    /// Bitmap of the validator slots that hold the jurors in `seats`.
    function _slotsOf(Committee storage committee, uint256 seats) internal view returns (uint256 slots) {
        for (uint256 seat; seats >> seat != 0; ++seat) {
            if (_has(seats, seat)) slots |= uint256(1) << registry.nodeOf(committee.jurors[seat]).slot;
        }
    }

    function _has(uint256 seats, uint256 seat) internal pure returns (bool) {
        return (seats >> seat) & 1 == 1;
    }

    function _after(uint256 seconds_) internal view returns (uint40) {
        return (block.timestamp + seconds_).toUint40();
    }

    /// Starts waiting for a draw. Its seed is the hash of this block, which is not known yet, or of a later one.
    function _awaitDraw(Record storage stored) internal returns (uint40 deadline) {
        RoundStorage storage live = _storageOf(stored);
        deadline = _after(live.drawSeconds);
        stored.state = State.Closed;
        stored.deadline = deadline;
        live.closeBlock = block.number.toUint40();
    }

    /// Pays from the round's reserve. The reserve covers every payment by construction.
    function _pay(uint256 round, Record storage stored, uint32 node, address owner, uint256 amount) internal {
        if (amount == 0) return;
        uint128 paid = amount.toUint128();
        _storageOf(stored).reserved -= paid;
        market.pay(stored.run, round, node, owner, paid);
    }

    /// Pays many nodes, see `_pay`.
    function _payAll(uint256 round, Record storage stored, bytes memory payments, uint256 total) internal {
        if (total == 0) return;
        _storageOf(stored).reserved -= total.toUint128();
        market.payAll(stored.run, round, payments);
    }

    /// Ends a round and releases the rest of its reserve to the run's escrow.
    function _end(uint256 round, Record storage stored, State state) internal {
        RoundStorage storage live = _storageOf(stored);
        uint128 released = live.reserved;
        stored.state = state;
        live.reserved = 0;
        if (state == State.Void) emit RoundVoided(round, released);
        else emit RoundSettled(round, released);
        if (released != 0) market.release(stored.run, round, released);
    }

    /// Frees each listed node's jobs that are not in `settled`.
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
        // Missing jobs are unpaid, so the returned owners are not needed.
        // slither-disable-next-line unused-return
        registry.freeJobs(left);
    }
}
