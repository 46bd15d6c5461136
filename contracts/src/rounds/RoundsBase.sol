// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IMarket} from "../interfaces/IMarket.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {IRounds, Round, RoundsTerms, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";

/// One committee as stored. While voting, `words` holds each seat's commitment; a reveal replaces it by the accept bitmap,
/// so that most reveals write no fresh storage.
struct Committee {
    uint32[15] jurors;
    uint256[15] words;
    uint256[15] fraud;
}

/// @title RoundsBase: what every phase of a round shares
abstract contract RoundsBase is IRounds {
    using SafeCast for uint256;

    IRegistry public immutable registry;
    IMarket public immutable market;
    uint128 internal immutable FRAUD_SLASH;
    uint128 internal immutable ABSENCE_PENALTY;

    /// @inheritdoc IRounds
    uint256 public roundCount;
    mapping(uint256 => Round) internal _rounds;
    mapping(uint256 round => mapping(uint8 attempt => Committee)) internal _committees;
    /// @inheritdoc IRounds
    mapping(uint256 round => mapping(uint8 batch => bytes32)) public batchDigest;

    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_) {
        // Deployed last: the others were told this address before it existed.
        bool named = registry_.rounds() == address(this) && market_.rounds() == address(this);
        if (!named || address(market_.registry()) != address(registry_)) revert WrongDeployment();
        registry = registry_;
        market = market_;
        FRAUD_SLASH = terms_.fraudSlash;
        ABSENCE_PENALTY = terms_.absencePenalty;
    }

    function _in(uint256 round, State state) internal view returns (Round storage stored) {
        stored = _rounds[round];
        if (stored.state != state) revert WrongState(round, stored.state);
    }

    function _requireAssignments(Round storage stored, bytes calldata assignments) internal view {
        bytes32 given = keccak256(assignments);
        if (given != stored.assignmentsHash) revert WrongAssignments(given, stored.assignmentsHash);
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
        uint256 job;
        uint256 length = Assignments.listings(assignments);
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = Assignments.read(assignments, i);
            uint32 free_;
            for (uint256 end = job + count; job < end; ++job) {
                if ((settled >> job) & 1 == 0) ++free_;
            }
            if (free_ != 0) registry.freeJobs(node, free_);
        }
    }
}
