// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IAdmin} from "../interfaces/IAdmin.sol";
import {Payment} from "../interfaces/ICredits.sol";
import {IMarket} from "../interfaces/IMarket.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {Appeal, IRoundsFacts, Round, RoundsTerms, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";

/// One committee as stored. While voting, `words` holds each seat's commitment; a reveal replaces it by the vote, so that most
/// reveals write no fresh storage. A vote is the accept bitmap, with the fraud bitmap in the upper half of the same word where
/// no job above 127 was submitted, else in `fraud`.
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

    /// @inheritdoc IRoundsFacts
    uint256 public roundCount;
    mapping(uint256 => Round) internal _rounds;
    // Written by `Judging`, which the settlement half shares storage with but not code.
    // slither-disable-next-line uninitialized-state
    mapping(uint256 round => mapping(uint8 attempt => Committee)) internal _committees;
    /// @inheritdoc IRoundsFacts
    mapping(uint256 round => mapping(uint8 batch => bytes32)) public batchDigest;
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

    function _in(uint256 round, State state) internal view returns (Round storage stored) {
        stored = _rounds[round];
        if (stored.state != state) revert WrongState(round, stored.state);
    }

    function _requireAssignments(Round storage stored, bytes calldata assignments) internal view {
        bytes32 given = keccak256(assignments);
        if (given != stored.assignmentsHash) revert WrongAssignments(given, stored.assignmentsHash);
    }

    /// Only an appeal lists no jobs.
    function _isAppeal(Round storage stored) internal view returns (bool) {
        return stored.jobs == 0;
    }

    /// When anyone may force the end.
    function _endsBy(Round storage stored) internal view returns (uint256) {
        return uint256(stored.openedAt) + MAX_ROUND;
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

    /// Pays from the round's reserve. The reserve covers every payment by construction.
    function _pay(uint256 round, Round storage stored, uint32 node, address owner, uint256 amount) internal {
        if (amount == 0) return;
        uint128 paid = amount.toUint128();
        stored.reserved -= paid;
        market.pay(stored.run, round, node, owner, paid);
    }

    /// As `_pay`, for many at once.
    function _payAll(uint256 round, Round storage stored, Payment[] memory payments) internal {
        uint256 total = 0;
        for (uint256 i; i < payments.length; ++i) {
            total += payments[i].amount;
        }
        if (total == 0) return;
        stored.reserved -= total.toUint128();
        market.payAll(stored.run, round, payments);
    }

    /// Ends a round: what is left of its reserve goes back to the run's escrow.
    function _end(uint256 round, Round storage stored, State state) internal {
        uint128 released = stored.reserved;
        stored.state = state;
        stored.reserved = 0;
        if (state == State.Void) emit RoundVoided(round, released);
        else emit RoundSettled(round, released);
        if (released != 0) market.release(stored.run, round, released);
    }

    /// Frees, of each listed node, the jobs that are not in `settled`.
    function _freeAllBut(uint256 settled, bytes calldata assignments) internal {
        uint256 job = 0;
        uint256 length = Assignments.listings(assignments);
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = Assignments.read(assignments, i);
            uint256 listed = (type(uint256).max >> (256 - count)) << job;
            uint256 left = Bitmaps.count(listed & ~settled);
            // Missing jobs are unpaid, so that their owner does not matter here.
            // slither-disable-next-line unused-return
            if (left != 0) registry.freeJobs(node, left.toUint32());
            job += count;
        }
    }
}
