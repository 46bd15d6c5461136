// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "./ICredits.sol";
import {IRegistry} from "./IRegistry.sol";

/// What a requester fixes when it opens a run.
/// @param coordinator      the only address that may open rounds of this run
/// @param trainer          the only address that may publish its checkpoints; signs its manifests
/// @param rulesHash        keccak256 of the canonical JSON rules (model, sampling, tasks, thresholds)
/// @param pricePerUnit     credits paid for one verified unit of work (one floating-point operation)
/// @param jurorFee         credits a juror may earn for one round
/// @param maxUnits         most units one job can be paid for
/// @param committee        seats of the first committee: odd, 1 to 15
/// @param appealSeats      seats of the appeal committee: 0 (no appeals) or odd, at least committee + 2, at most 15
/// @param workSeconds      from opening to the submission deadline
/// @param drawSeconds      from closing, within which a committee must be drawn
/// @param commitSeconds    from the draw to the end of committing
/// @param revealSeconds    from the end of committing to the end of revealing
/// @param challengeSeconds from the tally, within which a verdict may be appealed; 0 exactly where appealSeats is 0
/// @dev `open` and `announce` refuse terms (`BadTerms` names the field) with which a round's reserve could overflow; with which
/// a round, its redraw and an appeal with its own redraw could outlast maxRoundSeconds; or with which the pay of one job,
/// maxUnits * pricePerUnit, would not cover (appealSeats - 1) * jurorFee, the most that an appeal over it can cost when nothing
/// comes of it.
struct RunTerms {
    address coordinator;
    address trainer;
    bytes32 rulesHash;
    uint128 pricePerUnit;
    uint128 jurorFee;
    uint64 maxUnits;
    uint8 committee;
    uint8 appealSeats;
    uint32 workSeconds;
    uint32 drawSeconds;
    uint32 commitSeconds;
    uint32 revealSeconds;
    uint32 challengeSeconds;
}

/// Protocol-wide delays, fixed at deployment.
/// @param noticeSeconds    between the announcement of new terms and their effect
/// @param maxRoundSeconds  from a round's opening until anyone may force its end; less than the unbonding delay
struct MarketTerms {
    uint40 noticeSeconds;
    uint40 maxRoundSeconds;
}

/// @param requester  who opened the run and may fund, close and refund it
/// @param version    newest checkpoint version
/// @param escrow     credits locked and not reserved
/// @param reserved   credits promised to rounds that have not ended, deposits on their appeals included
/// @param closed     no new rounds
/// @param terms      those in effect now
struct Run {
    address requester;
    uint32 version;
    bool closed;
    uint128 escrow;
    uint128 reserved;
    RunTerms terms;
}

/// Jobs of one round that went into a checkpoint.
struct Consumption {
    uint256 round;
    uint256 jobs;
}

/// @title Market: runs, their escrow, who joined them, and their checkpoints
/// @notice Anyone may open a run. Nodes consent to its rules by joining at their hash. New terms are announced and take effect
/// after notice, at a rules hash this run never had: every node has to join again, and rounds already open keep the terms they
/// were opened with. A checkpoint is published together
/// with the jobs it was trained on; `Rounds` refuses any that is not accepted now or was consumed before, so nothing that was
/// not accepted is trained on, and nothing twice.
interface IMarket {
    /// Version 0 is the model the run starts from. `uri` says where rules and manifest can be fetched.
    event RunOpened(uint256 indexed run, address indexed requester, RunTerms terms, bytes32 manifestRoot, string uri);
    event RunFunded(uint256 indexed run, address indexed requester, uint256 amount, uint256 escrow);
    event RunClosed(uint256 indexed run, address indexed requester);
    event RunRefunded(uint256 indexed run, address indexed requester, uint256 amount, uint256 escrow);
    /// `terms` replace the present ones from `effectiveAt` on, and an earlier announcement that had not taken effect at once.
    event TermsAnnounced(uint256 indexed run, address indexed requester, RunTerms terms, uint40 effectiveAt);
    event NodeJoined(uint256 indexed run, uint32 indexed node, bytes32 rulesHash);
    event NodeLeft(uint256 indexed run, uint32 indexed node);
    event EscrowReserved(uint256 indexed run, uint256 indexed round, uint256 amount);
    event EscrowReleased(uint256 indexed run, uint256 indexed round, uint256 amount);
    /// `owner`'s credits stand as a deposit on `round`, an appeal.
    event DepositLocked(uint256 indexed run, uint256 indexed round, address indexed owner, uint256 amount);
    /// What is left of a deposit, or what escrow adds to it, became free credits of `to`.
    event DepositPaidOut(uint256 indexed run, uint256 indexed round, address indexed to, uint256 amount);
    event CheckpointPublished(
        uint256 indexed run, uint32 indexed version, bytes32 manifestRoot, Consumption[] consumed
    );

    error UnknownRun(uint256 run);
    error RunIsClosed(uint256 run);
    error RunNotClosed(uint256 run);
    error NotRequester(uint256 run, address requester, address caller);
    error NotTrainer(uint256 run, address trainer, address caller);
    error NotRounds(address caller);
    error NotNodeOwner(uint32 node, address owner, address caller);
    error NotWorker(uint32 node);
    error NotJoined(uint256 run, uint32 node);
    error WrongRules(bytes32 given, bytes32 present);
    error ZeroAmount();
    error BadTerms(string field);
    /// A run takes a rules hash once, so that nobody is still joined at it from before.
    error RulesUsedBefore(uint256 run, bytes32 rulesHash);
    error EscrowTooSmall(uint256 run, uint256 have, uint256 need);
    error VersionNotNext(uint32 given, uint32 present);

    function open(RunTerms calldata terms, bytes32 manifestRoot, string calldata uri) external returns (uint256 run);
    /// Locks `amount` of the requester's credits in the run's escrow.
    function fund(uint256 run, uint128 amount) external;
    /// No new rounds; rounds already open run to their end.
    function close(uint256 run) external;
    /// Returns unreserved escrow to the requester's credits. Only once closed.
    function refund(uint256 run, uint128 amount) external;
    /// By the requester: new terms, in effect after notice. The latest announcement counts.
    function announce(uint256 run, RunTerms calldata terms) external;
    /// By the node's owner, at the run's present rules hash.
    function join(uint256 run, uint32 node, bytes32 rulesHash) external;
    function leave(uint256 run, uint32 node) external;
    /// By the trainer key: `version` must be greater than the newest, each job accepted and not consumed before.
    function publish(uint256 run, uint32 version, bytes32 manifestRoot, Consumption[] calldata consumed) external;

    /// Rounds only: moves escrow to reserved.
    function reserve(uint256 run, uint256 round, uint128 amount) external;
    /// Rounds only: moves reserved back to escrow.
    function release(uint256 run, uint256 round, uint128 amount) external;
    /// Rounds only: pays reserved credits to the owner of a node.
    function pay(uint256 run, uint256 round, uint32 node, address owner, uint128 amount) external;
    /// Rounds only: as `pay` for each payment, packed as `Credits.earnAll` takes them; one of nothing is passed over.
    function payAll(uint256 run, uint256 round, bytes calldata payments) external;
    /// Rounds only: takes a deposit on `round` from `owner`'s free credits; counts as reserved.
    function deposit(uint256 run, uint256 round, address owner, uint128 amount) external;
    /// Rounds only: gives reserved credits of `round` to `to`.
    function payOut(uint256 run, uint256 round, address to, uint128 amount) external;

    function runCount() external view returns (uint256);
    /// Reverts `UnknownRun` for an id never given.
    function runOf(uint256 run) external view returns (Run memory);
    /// The terms announced last, in effect already or not, and from when they count; zeros where none were.
    function announcedOf(uint256 run) external view returns (RunTerms memory terms, uint40 effectiveAt);
    function terms() external view returns (MarketTerms memory);
    /// The rules hash at which the node joined; zero where it has not.
    function joinedAt(uint256 run, uint32 node) external view returns (bytes32);
    /// Reverts `NotJoined` unless every node of packed assignments has joined at `rulesHash`.
    function requireJoined(uint256 run, bytes32 rulesHash, bytes calldata assignments) external view;
    /// Zero where the version was never published.
    function manifestRootOf(uint256 run, uint32 version) external view returns (bytes32);
    function registry() external view returns (IRegistry);
    function credits() external view returns (ICredits);
    function rounds() external view returns (address);
}
