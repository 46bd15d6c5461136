// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "./ICredits.sol";
import {IRegistry} from "./IRegistry.sol";

/// Terms of a run, set by its requester. `open` and `announce` list the conditions they must meet.
/// @param coordinator       the only account that may open rounds of the run
/// @param trainer           the only account that may publish its checkpoints; signs its manifests
/// @param rulesHash         keccak256 of the canonical JSON rules (model, sampling, tasks, thresholds); opaque here,
///                          defined in protocol/wire/rules.py
/// @param pricePerUnit      credits paid for one verified unit of work (one floating-point operation)
/// @param jurorFee          maximum credits a juror earns in one round, at least the protocol's minimum
/// @param maxUnits          maximum units one job is paid for
/// @param committee         seats of the first committee: odd, 1 to 15
/// @param appealSeats       seats of an appeal's committee: 0 (no appeals), or odd, at least committee + 2, at most 15
/// @param workSeconds       from opening to the submission deadline
/// @param drawSeconds       from the close to the end of the draw
/// @param commitSeconds     from the draw to the end of committing
/// @param revealSeconds     from the end of committing to the end of revealing
/// @param challengeSeconds  from the tally to the end of appealing; 0 if and only if appealSeats is 0
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

/// Protocol-wide delays and minimums, fixed at deployment.
/// @param noticeSeconds    from the announcement of new terms to their effect
/// @param maxRoundSeconds  from a round's opening until anyone may expire it; less than the registry's unbondingDelay
/// @param minCommitSeconds  minimum commitSeconds of a run, not zero
/// @param minRevealSeconds  minimum revealSeconds of a run, not zero
/// @param minJurorFee       minimum jurorFee of a run
/// @param maxStrikes        strikes within an unbonding delay that end a validator's service in a run, not zero
struct MarketTerms {
    uint40 noticeSeconds;
    uint40 maxRoundSeconds;
    uint32 minCommitSeconds;
    uint32 minRevealSeconds;
    uint128 minJurorFee;
    uint16 maxStrikes;
}

/// A run.
/// @param requester  account that opened the run and may fund, change, close and refund it
/// @param version    newest checkpoint version
/// @param closed     no new rounds
/// @param escrow     credits locked and not reserved
/// @param reserved   credits reserved for rounds that have not ended, deposits of their appeals included
/// @param terms      terms in effect now
struct Run {
    address requester;
    uint32 version;
    bool closed;
    uint128 escrow;
    uint128 reserved;
    RunTerms terms;
}

/// Jobs of one round that a checkpoint was trained on.
/// @param round  number of the round
/// @param jobs   bitmap: bit j stands for job j
struct Consumption {
    uint256 round;
    uint256 jobs;
}

/// @title IMarket
/// @notice Runs, their terms and escrow, the nodes that joined them, and their checkpoints. Run ids start at 1,
/// checkpoint versions at 0.
/// @notice Nodes consent to a run's rules by joining at their hash: workers to be listed, validators to be drawn. New
/// terms take effect after notice, always with a new rules hash, so that every node has to join again; a validator may
/// do so during the notice. A round keeps the terms it was opened with, and the validators that served the run then.
/// @notice A strike is a validator's seat left empty, an abstention in it, or a vote that a job's artifact is unavailable
/// which an appeal's committee contradicts by reading it; at most one a round, an appeal being a round of its own.
/// A round older than one that has counted counts no more, so that appeals in two rounds in turn are two strikes.
/// With maxStrikes strikes within an unbonding delay of the first, the validator leaves the run, and may join it again
/// after that delay.
/// @dev Constructor: IRegistry registry, ICredits credits, address rounds, MarketTerms terms. Reverts `BadTerms` unless
/// maxRoundSeconds is less than the registry's unbondingDelay, and minCommitSeconds, minRevealSeconds and maxStrikes are
/// not zero.
interface IMarket {
    /// @notice A run was opened.
    /// @param run           id of the run
    /// @param requester     account that opened it
    /// @param terms         its terms
    /// @param manifestRoot  manifest root of version 0, the model the run starts from
    /// @param uri           where rules and manifest can be fetched; opaque here
    event RunOpened(uint256 indexed run, address indexed requester, RunTerms terms, bytes32 manifestRoot, string uri);

    /// @notice Credits were added to a run's escrow.
    /// @param run        id of the run
    /// @param requester  account debited
    /// @param amount     credits added
    /// @param escrow     the run's escrow now
    event RunFunded(uint256 indexed run, address indexed requester, uint256 amount, uint256 escrow);

    /// @notice A run accepts no new rounds from now on.
    /// @param run        id of the run
    /// @param requester  its requester
    event RunClosed(uint256 indexed run, address indexed requester);

    /// @notice Escrow was returned to the requester.
    /// @param run        id of the run
    /// @param requester  account credited
    /// @param amount     credits returned
    /// @param escrow     the run's escrow now
    event RunRefunded(uint256 indexed run, address indexed requester, uint256 amount, uint256 escrow);

    /// @notice New terms were announced. They replace an earlier announcement that had not taken effect.
    /// @param run          id of the run
    /// @param requester    its requester
    /// @param terms        the new terms
    /// @param effectiveAt  timestamp in seconds from which they are in effect
    event TermsAnnounced(uint256 indexed run, address indexed requester, RunTerms terms, uint40 effectiveAt);

    /// @notice A node joined a run.
    /// @param run        id of the run
    /// @param node       id of the node
    /// @param rulesHash  the rules it consents to
    event NodeJoined(uint256 indexed run, uint32 indexed node, bytes32 rulesHash);

    /// @notice A node left a run, or was removed from it: for its strikes, or as none of its rounds could use it any
    /// more. Also emitted if it had not joined.
    /// @param run   id of the run
    /// @param node  id of the node
    event NodeLeft(uint256 indexed run, uint32 indexed node);

    /// @notice A strike was counted against a validator.
    /// @param run      id of the run
    /// @param node     id of the validator
    /// @param round    number of the round whose seat it is; an appeal's own number for a seat in its committee
    /// @param strikes  its strikes in the run, those that are past left out
    event NodeStruck(uint256 indexed run, uint32 indexed node, uint256 indexed round, uint256 strikes);

    /// @notice Escrow was reserved for a round.
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param amount  credits
    event EscrowReserved(uint256 indexed run, uint256 indexed round, uint256 amount);

    /// @notice The unspent reserve of a round was returned to escrow.
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param amount  credits
    event EscrowReleased(uint256 indexed run, uint256 indexed round, uint256 amount);

    /// @notice Credits were deposited on an appeal.
    /// @param run     id of the run
    /// @param round   number of the appeal
    /// @param owner   the appellant, account debited
    /// @param amount  credits
    event DepositLocked(uint256 indexed run, uint256 indexed round, address indexed owner, uint256 amount);

    /// @notice Credits of an appeal were paid out: the rest of its deposit with the fees covered, or the forfeited
    /// bond.
    /// @param run     id of the run
    /// @param round   number of the appeal
    /// @param to      the appellant, or the treasury for a forfeited bond; account credited
    /// @param amount  credits
    event DepositPaidOut(uint256 indexed run, uint256 indexed round, address indexed to, uint256 amount);

    /// @notice A checkpoint was published.
    /// @param run           id of the run
    /// @param version       its version
    /// @param manifestRoot  root of its manifest
    /// @param consumed      jobs it was trained on
    event CheckpointPublished(
        uint256 indexed run, uint32 indexed version, bytes32 manifestRoot, Consumption[] consumed
    );

    /// @notice No run has this id.
    /// @param run  the id
    error UnknownRun(uint256 run);

    /// @notice The run is closed.
    /// @param run  id of the run
    error RunIsClosed(uint256 run);

    /// @notice The run is not closed.
    /// @param run  id of the run
    error RunNotClosed(uint256 run);

    /// @notice The function is for the run's requester only.
    /// @param run        id of the run
    /// @param requester  its requester
    /// @param caller     the caller
    error NotRequester(uint256 run, address requester, address caller);

    /// @notice The function is for the run's trainer only.
    /// @param run      id of the run
    /// @param trainer  trainer by the terms in effect
    /// @param caller   the caller
    error NotTrainer(uint256 run, address trainer, address caller);

    /// @notice The function is for `Rounds` only.
    /// @param caller  the caller
    error NotRounds(address caller);

    /// @notice The function is for the node's owner only.
    /// @param node    id of the node
    /// @param owner   its owner
    /// @param caller  the caller
    error NotNodeOwner(uint32 node, address owner, address caller);

    /// @notice The validator left the run for its strikes.
    /// @param run    id of the run
    /// @param node   id of the validator
    /// @param until  timestamp in seconds from which it may join again
    error StruckOut(uint256 run, uint32 node, uint256 until);

    /// @notice The node has not joined the run at the required rules hash.
    /// @param run   id of the run
    /// @param node  id of the node
    error NotJoined(uint256 run, uint32 node);

    /// @notice The rules hash is not the one in effect.
    /// @param given    the hash given
    /// @param present  the hash in effect
    error WrongRules(bytes32 given, bytes32 present);

    /// @notice The amount is zero.
    error ZeroAmount();

    /// @notice A term or a manifest root is invalid.
    /// @param field  name of the first invalid field; "seconds" if the phases together last too long
    error BadTerms(string field);

    /// @notice The run has or had these rules, in effect or announced only. A node that joined at them before would
    /// otherwise be joined at the new terms without its consent.
    /// @param run        id of the run
    /// @param rulesHash  the hash
    error RulesUsedBefore(uint256 run, bytes32 rulesHash);

    /// @notice The run has less escrow than needed.
    /// @param run   id of the run
    /// @param have  its escrow
    /// @param need  credits needed
    error EscrowTooSmall(uint256 run, uint256 have, uint256 need);

    /// @notice The version is not greater than the newest.
    /// @param given    the version given
    /// @param present  the newest version
    error VersionNotNext(uint32 given, uint32 present);

    /// @notice Opens a run. Anyone may call it; the caller becomes its requester.
    /// @dev Reverts `BadTerms` unless, with a = appealSeats, c = committee and
    /// v = 4 * (drawSeconds + commitSeconds + revealSeconds), the time of voting with all redraws:
    ///  - coordinator, trainer, rulesHash, manifestRoot, maxUnits, workSeconds, drawSeconds are not zero;
    ///  - commitSeconds, revealSeconds and jurorFee are at least the protocol's minimums;
    ///  - maxUnits * pricePerUnit, the maximum pay of a job, is at most fraudSlash ("pricePerUnit");
    ///  - c and a are as described at `RunTerms`, and challengeSeconds is zero if and only if a is;
    ///  - workSeconds + v, plus challengeSeconds + v if a is not zero, is at most maxRoundSeconds ("seconds");
    ///  - 256 * maxUnits * pricePerUnit + 36 * jurorFee is below 2^128 ("jurorFee").
    /// @param terms         terms of the run
    /// @param manifestRoot  keccak256 of the manifest of version 0; opaque here, defined in protocol/wire/manifest.py
    /// @param uri           where rules and manifest can be fetched; opaque here
    /// @return run  id of the new run
    function open(RunTerms calldata terms, bytes32 manifestRoot, string calldata uri) external returns (uint256 run);

    /// @notice Locks free credits of the requester in the run's escrow. Requester only, while the run is not closed.
    /// @param run     id of the run
    /// @param amount  credits, not zero
    function fund(uint256 run, uint128 amount) external;

    /// @notice Refuses new rounds and nodes for good. Open rounds continue, and checkpoints may still be published.
    /// Requester only.
    /// @param run  id of the run
    function close(uint256 run) external;

    /// @notice Returns unreserved escrow to the requester's free credits. Requester only, once the run is closed.
    /// @param run     id of the run
    /// @param amount  credits, not zero
    function refund(uint256 run, uint128 amount) external;

    /// @notice Announces new terms, in effect noticeSeconds later. Requester only, while the run is not closed.
    /// @dev Replaces an earlier announcement that is not in effect yet. Reverts `BadTerms` as `open` does, and
    /// `RulesUsedBefore`.
    /// @param run    id of the run
    /// @param terms  new terms, with a rules hash the run never had
    function announce(uint256 run, RunTerms calldata terms) external;

    /// @notice Joins a node to a run. Node's owner only, while the run is not closed.
    /// @dev A validator must not be retired (`IRegistry.AlreadyRetired`), nor wait for a slot (`IRegistry.WaitsForSlot`), nor out of the run for its strikes.
    /// @param run        id of the run
    /// @param node       id of the node
    /// @param rulesHash  the rules hash in effect; for a validator also the one announced
    function join(uint256 run, uint32 node, bytes32 rulesHash) external;

    /// @notice Removes a node from a run, so that it is neither listed nor drawn in new rounds. Node's owner only;
    /// anyone, for a validator that joined, once the run is closed or has neither in effect nor announced the rules that
    /// the validator serves.
    /// @dev So nobody's `jurorSlots` has to count validators that no round of their runs can draw.
    /// @param run   id of the run
    /// @param node  id of the node
    function leave(uint256 run, uint32 node) external;

    /// @notice Publishes a checkpoint and marks the jobs it was trained on as consumed. Trainer only.
    /// @dev Calls `ISettlement.consume` for each entry, which reverts unless every job is accepted and was not consumed
    /// before.
    /// @param run           id of the run
    /// @param version       greater than the newest version
    /// @param manifestRoot  keccak256 of the manifest, not zero; opaque here, defined in protocol/wire/manifest.py
    /// @param consumed      jobs it was trained on
    function publish(uint256 run, uint32 version, bytes32 manifestRoot, Consumption[] calldata consumed) external;

    /// @notice Counts a strike against a validator, unless it has one for this round or a newer one. `Rounds` only.
    /// @param run    id of the run
    /// @param round  number of the round
    /// @param node   id of the validator
    function strike(uint256 run, uint256 round, uint32 node) external;

    /// @notice Moves credits from escrow to reserved. `Rounds` only.
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param amount  credits
    function reserve(uint256 run, uint256 round, uint128 amount) external;

    /// @notice Moves credits from reserved back to escrow. `Rounds` only.
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param amount  credits
    function release(uint256 run, uint256 round, uint128 amount) external;

    /// @notice Pays reserved credits to a node's owner. `Rounds` only.
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param node    id of the node
    /// @param owner   account to credit
    /// @param amount  credits
    function pay(uint256 run, uint256 round, uint32 node, address owner, uint128 amount) external;

    /// @notice Pays reserved credits to many nodes' owners. `Rounds` only.
    /// @param run       id of the run
    /// @param round     number of the round
    /// @param payments  packed as for `ICredits.earnAll`
    function payAll(uint256 run, uint256 round, bytes calldata payments) external;

    /// @notice Locks free credits of an appellant as a deposit, which counts as reserved. `Rounds` only.
    /// @param run     id of the run
    /// @param round   number of the appeal
    /// @param owner   the appellant, account to debit
    /// @param amount  credits
    function deposit(uint256 run, uint256 round, address owner, uint128 amount) external;

    /// @notice Turns reserved credits of an appeal into free credits. `Rounds` only.
    /// @param run     id of the run
    /// @param round   number of the appeal
    /// @param to      account to credit
    /// @param amount  credits
    function payOut(uint256 run, uint256 round, address to, uint128 amount) external;

    /// @notice Number of runs opened; also the newest id.
    function runCount() external view returns (uint256);

    /// @notice A run. Reverts `UnknownRun`.
    function runOf(uint256 run) external view returns (Run memory);

    /// @notice The latest announcement, in effect or not. Reverts `UnknownRun`.
    /// @return terms        announced terms; zeros if none were
    /// @return effectiveAt  timestamp in seconds from which they are in effect; zero if none were
    function announcedOf(uint256 run) external view returns (RunTerms memory terms, uint40 effectiveAt);

    /// @notice Protocol-wide delays.
    function terms() external view returns (MarketTerms memory);

    /// @notice Slots whose validators a round of a run may draw, were it opened now.
    /// @param run        id of the run
    /// @param rulesHash  the rules hash in effect
    /// @return slots  bitmap of the slots whose validators are eligible and serve the run under these rules
    /// @return least  number of slots that a round needs: a third, rounded up, of the eligible slots that serve any run
    function jurorSlots(uint256 run, bytes32 rulesHash) external view returns (uint256 slots, uint256 least);

    /// @notice Strikes of a validator in a run.
    /// @return count  strikes that are not past
    /// @return until  timestamp in seconds from which they are past; zero if there are none
    function strikesOf(uint256 run, uint32 node) external view returns (uint256 count, uint256 until);

    /// @notice The rules hash at which a node joined last; zero if it has not joined or has left.
    function joinedAt(uint256 run, uint32 node) external view returns (bytes32);

    /// @notice Reverts `NotJoined` unless every listed node has joined a run at a rules hash.
    /// @param run          id of the run
    /// @param rulesHash    the rules hash
    /// @param assignments  packed as for `IRounds.open`
    function requireJoined(uint256 run, bytes32 rulesHash, bytes calldata assignments) external view;

    /// @notice Manifest root of a checkpoint; zero if the version was not published.
    function manifestRootOf(uint256 run, uint32 version) external view returns (bytes32);

    /// @notice The node registry.
    function registry() external view returns (IRegistry);

    /// @notice The credits that escrow is locked in.
    function credits() external view returns (ICredits);

    /// @notice The only caller of `reserve`, `release`, `pay`, `payAll`, `deposit` and `payOut`.
    function rounds() external view returns (address);
}
