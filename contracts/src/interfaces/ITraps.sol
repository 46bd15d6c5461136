// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IMarket} from "./IMarket.sol";
import {IRegistry} from "./IRegistry.sol";
import {IRounds} from "./IRounds.sol";

/// Fault that a requester's own node plants in a job. The list is closed: an honest prefill finds each of them far beyond
/// the bound of fraud, so that a juror that misses one did not look.
enum TrapKind {
    /// None: a leaf that tells nobody how many others are traps.
    Decoy,
    /// Tokens sampled with the noise of another job.
    OtherSeed,
    /// All samples of a prompt generated with the noise of the first.
    OneAnswer,
    /// Prompts of another round.
    OtherPrompts
}

/// A leaf of a set of traps: one fault that one node plants in one job of these rounds.
/// @param node  id of the worker
/// @param from  number of the first round in which it may be planted
/// @param to    number of the last one
/// @param kind  the fault
/// @param salt  random word that hides the leaf
struct Trap {
    uint32 node;
    uint48 from;
    uint48 to;
    TrapKind kind;
    bytes32 salt;
}

/// A requester's set of traps.
/// @param setter  the run's requester, who paid the deposit and is returned a decoy's share
/// @param run     id of the run
/// @param first   number of the first round that a leaf may name
/// @param openBy  timestamp in seconds after which no leaf can be opened
/// @param leaves  number of leaves, decoys included
/// @param opened  number of leaves opened; equal to `leaves` once the set is forfeited
/// @param bounty  wei deposited for each leaf
/// @param root    Merkle root of the leaves
struct TrapSet {
    address setter;
    uint48 run;
    uint48 first;
    uint40 openBy;
    uint16 leaves;
    uint16 opened;
    uint128 bounty;
    bytes32 root;
}

/// @title ITraps
/// @notice Faults that a requester plants in its own nodes' work, to find jurors that accept unread. A set is announced by
/// its Merkle root before the rounds that it names are opened. The trapped job is judged, unpaid and slashed like any
/// other: this contract moves nothing but the setter's deposit, and never into the setter's hands except for decoys.
/// @notice Opening a trap needs a job that is fraud. One that jurors accepted has to be appealed first (`ISettlement.appeal`),
/// so that jurors pay only if a majority of a trial contradicts them. An appellant's bounty is at most what the trapped
/// node loses (`RoundsTerms.appealBounty`), so a setter cannot gain from missed traps either.
/// @dev A leaf is keccak256(keccak256(abi.encode(chainid, this contract, trap))); an inner node is keccak256 of its two
/// children, the smaller first.
/// @dev Constructor: IRounds rounds.
/// @dev Invariant: token.balanceOf(this) >= the sum of (leaves - opened) * bounty over all sets.
interface ITraps {
    /// @notice A set of traps was announced.
    /// @param set     number of the set
    /// @param run     id of the run
    /// @param setter  the run's requester
    /// @param root    Merkle root of the leaves
    /// @param leaves  number of leaves
    /// @param bounty  wei deposited for each leaf
    /// @param first   number of the first round that a leaf may name
    /// @param openBy  timestamp in seconds after which no leaf can be opened
    event TrapsSet(
        uint256 indexed set,
        uint256 indexed run,
        address indexed setter,
        bytes32 root,
        uint16 leaves,
        uint128 bounty,
        uint48 first,
        uint40 openBy
    );

    /// @notice A trap was opened.
    /// @param set       number of the set
    /// @param round     number of the round
    /// @param node      worker that planted it
    /// @param job       number of the job
    /// @param kind      the fault
    /// @param leaf      hash of the leaf
    /// @param finders   ids of the validators of the first committee that voted fraud, by seat
    /// @param bounty    wei; each finder's owner gets bounty / finders, rounded down, and the treasury the rest
    event TrapOpened(
        uint256 indexed set,
        uint256 indexed round,
        uint32 indexed node,
        uint8 job,
        TrapKind kind,
        bytes32 leaf,
        uint32[] finders,
        uint256 bounty
    );

    /// @notice A decoy was opened, and its share returned to the setter.
    /// @param set     number of the set
    /// @param setter  receiver
    /// @param leaf    hash of the leaf
    /// @param amount  wei returned
    event DecoyOpened(uint256 indexed set, address indexed setter, bytes32 leaf, uint256 amount);

    /// @notice The shares of the leaves that were not opened in time went to the treasury.
    /// @param set       number of the set
    /// @param treasury  receiver
    /// @param leaves    number of leaves not opened
    /// @param amount    wei paid
    event TrapsForfeited(uint256 indexed set, address indexed treasury, uint16 leaves, uint256 amount);

    /// @notice A run without appeals has no traps: nobody would pay for a missed one.
    /// @param run  id of the run
    error NoAppeals(uint256 run);

    /// @notice A value is out of range.
    /// @param field  its name
    error BadTraps(string field);

    /// @notice The set does not exist.
    /// @param set  number asked for
    error UnknownSet(uint256 set);

    /// @notice The leaf is not in the set, or was opened before.
    /// @param set   number of the set
    /// @param leaf  hash of the leaf
    error WrongLeaf(uint256 set, bytes32 leaf);

    /// @notice The leaf is a decoy, or is none.
    /// @param kind  its kind
    error WrongKind(TrapKind kind);

    /// @notice The job is not one that the leaf names: another run's, outside its rounds, or not the node's.
    /// @param round  number of the round
    /// @param job    number of the job
    error NotTheTrap(uint256 round, uint8 job);

    /// @notice The job is not judged fraud now, its verdict is being appealed, or its round is not in the state Tallied.
    /// @param round  number of the round
    /// @param job    number of the job
    error NotFraud(uint256 round, uint8 job);

    /// @notice A checkpoint was trained on the job.
    /// @param round  number of the round
    /// @param job    number of the job
    error TrainedOn(uint256 round, uint8 job);

    /// @notice Another leaf was opened for the job.
    /// @param round  number of the round
    /// @param job    number of the job
    error AlreadyOpened(uint256 round, uint8 job);

    /// @notice The last round that a decoy names is not opened yet.
    /// @param to     number of that round
    /// @param count  number of rounds opened
    error RoundsAhead(uint256 to, uint256 count);

    /// @notice Announces a set of traps, and takes leaves * bounty of the caller's tokens. Needs an allowance.
    /// @dev Errors of other contracts are theirs: `IMarket.NotRequester`, `IRoundsFacts.TooEarly` and `IRoundsFacts.TooLate`.
    /// @param run     id of a run that offers appeals; the caller must be its requester
    /// @param root    Merkle root of the leaves
    /// @param leaves  number of leaves, not zero
    /// @param bounty  wei for each leaf, not zero
    /// @param first   number of the first round that a leaf may name; not opened yet
    /// @param openBy  timestamp in seconds after which no leaf can be opened; in the future, at most `MAX_SECONDS` ahead
    /// @return set    number of the set, from 1
    function set(uint256 run, bytes32 root, uint16 leaves, uint128 bounty, uint48 first, uint40 openBy)
        external
        returns (uint256 set);

    /// @notice Opens a trap: its share goes in equal parts to the owners of the seats that voted fraud. Anyone may call it.
    /// @dev The round must be Tallied, as seats cannot be read later: within the challenge window, or before `finish`.
    /// @param set_         number of the set
    /// @param trap         the leaf; not a decoy
    /// @param proof        its Merkle proof
    /// @param round        number of the round
    /// @param job          number of the job; fraud, assigned to the trap's node, trained on by no checkpoint
    /// @param assignments  of the round, packed as for `IRounds.open`
    function open(
        uint256 set_,
        Trap calldata trap,
        bytes32[] calldata proof,
        uint256 round,
        uint8 job,
        bytes calldata assignments
    ) external;

    /// @notice Opens a decoy, once all rounds that it names were opened, and returns its share. Anyone may call it.
    /// @dev A trap that was not planted, or not condemned, is no decoy: its share is lost.
    /// @param set_   number of the set
    /// @param trap   the leaf; a decoy
    /// @param proof  its Merkle proof
    function openDecoy(uint256 set_, Trap calldata trap, bytes32[] calldata proof) external;

    /// @notice Sends the shares of all leaves not opened by the deadline to the treasury. Anyone may call it.
    /// @param set_  number of the set
    function forfeit(uint256 set_) external;

    /// @notice A set of traps.
    /// @param set_  number of the set
    function setOf(uint256 set_) external view returns (TrapSet memory);

    /// @notice Number of sets.
    function setCount() external view returns (uint256);

    /// @notice Hash of a leaf.
    function leafOf(Trap calldata trap) external view returns (bytes32);

    /// @notice True if the leaf of this hash was opened.
    function isOpened(uint256 set_, bytes32 leaf) external view returns (bool);

    /// @notice Bitmap of the jobs of a round for which a trap was opened.
    function trapped(uint256 round) external view returns (uint256);

    /// @notice Maximum time between the setting of traps and their deadline: 180 days.
    function MAX_SECONDS() external view returns (uint256);

    /// @notice The rounds whose jobs are trapped.
    function rounds() external view returns (IRounds);

    /// @notice The market of these rounds.
    function market() external view returns (IMarket);

    /// @notice The registry of these rounds.
    function registry() external view returns (IRegistry);

    /// @notice The token that deposits are in.
    function token() external view returns (IERC20);
}
