// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IAdmin} from "./IAdmin.sol";
import {ICredits} from "./ICredits.sol";

/// What a node does. A node has one role for life; an owner's nodes all share one role.
enum Role {
    None,
    Worker,
    Validator
}

/// Why a bond was slashed.
enum Cause {
    Fraud,
    Absence,
    Overturned
}

/// One registered node.
/// @param owner         wallet that posted the bond and earns the credits
/// @param role          worker or validator
/// @param slot          validator: its place among the 256 slots; worker: 0
/// @param capacity      worker: most jobs in flight; validator: 1
/// @param inFlight      jobs listed in rounds that have not ended
/// @param activeAt      timestamp in seconds from which the node may be listed or drawn
/// @param retiredAt     timestamp in seconds at which its owner retired it; 0 while in service
/// @param bond          token wei at stake, counted through unbonding until withdrawn
/// @param revoked       the key was revoked and not replaced: neither listed nor drawn
/// @param withdrawn     the bond was paid out; the node is gone for good
/// @param key           session key on the host; signs submissions (worker) or sends votes (validator); zero while revoked
struct Node {
    address owner;
    Role role;
    uint8 slot;
    uint32 capacity;
    uint32 inFlight;
    uint40 activeAt;
    uint40 retiredAt;
    uint128 bond;
    bool revoked;
    bool withdrawn;
    address key;
}

/// Protocol-wide amounts and delays, fixed at deployment.
/// @param bondPerJob       worker bond in wei for each unit of capacity
/// @param validatorBond    fixed bond of a validator slot in wei
/// @param activationDelay  seconds between registration and being active
/// @param unbondingDelay   seconds between retirement and withdrawal; must be at least the longest possible round
struct RegistryTerms {
    uint128 bondPerJob;
    uint128 validatorBond;
    uint40 activationDelay;
    uint40 unbondingDelay;
}

/// @title Registry: nodes, their keys and their bonds
/// @notice An owner registers nodes and posts a bond for each. Both keys consent: the owner by sending the transaction,
/// the node key by an EIP-712 signature over
/// `NodeBinding(address owner,address key,uint8 role,uint32 capacity,uint256 deadline)` in the domain
/// ("Assize Registry", "1", chain id, this contract). Only `Rounds` may count jobs in flight and slash.
/// Slashed bonds are kept here for the treasury, never paid to whoever decided.
/// token.balanceOf(Registry) >= totalBonded() + treasuryBalance() at every moment.
/// `multicall` (OpenZeppelin) joins calls into one transaction: `selfPermit` and `register` together need no approval before.
/// @dev Assumes a token that keeps its amounts and calls nobody back. An owner's role is for life, also without nodes.
interface IRegistry {
    event NodeRegistered(
        uint32 indexed node,
        address indexed owner,
        address indexed key,
        Role role,
        uint8 slot,
        uint32 capacity,
        uint256 bond,
        uint40 activeAt
    );
    event BondToppedUp(uint32 indexed node, address indexed owner, uint256 amount, uint256 bond);
    event NodeRetired(uint32 indexed node, address indexed owner, uint40 retiredAt, uint40 withdrawableAt);
    event BondWithdrawn(uint32 indexed node, address indexed owner, uint256 amount);
    /// `amount` is what was taken, at most the bond left; `bond` is what remains.
    event NodeSlashed(
        uint32 indexed node, address indexed owner, uint256 indexed round, Cause cause, uint256 amount, uint256 bond
    );
    event KeyRotated(uint32 indexed node, address indexed owner, address indexed key);
    event KeyRevoked(uint32 indexed node, address indexed owner, address indexed key);
    /// Slashed bonds left for the treasury.
    event TreasurySwept(address indexed treasury, uint256 amount);
    /// Slashed bonds became credits of the one who had a verdict overturned.
    event SlashesAwarded(address indexed owner, uint256 indexed round, uint256 amount);

    error NotOwner(uint32 node, address owner, address caller);
    error NotRounds(address caller);
    error UnknownNode(uint32 node);
    error UnknownRole();
    error KeyInUse(address key, uint32 node);
    error BadKeySignature(address recovered, address key);
    error SignatureExpired(uint256 deadline, uint256 now_);
    error OwnerHasOtherRole(address owner, Role role);
    error NoFreeSlot();
    error ZeroAmount();
    error ZeroCapacity();
    /// A validator is one ticket: its capacity is 1.
    error NotOneTicket(uint32 capacity);
    error AlreadyRetired(uint32 node);
    error NotRetired(uint32 node);
    error AlreadyWithdrawn(uint32 node);
    error AlreadyRevoked(uint32 node);
    error StillBonded(uint32 node, uint256 withdrawableAt, uint32 inFlight);
    error NotListable(uint32 node);
    error OverCapacity(uint32 node, uint32 inFlight, uint32 capacity);

    /// Registers a node and takes exactly the bond its role and capacity require from the caller's tokens.
    function register(Role role, address key, uint32 capacity, uint256 deadline, bytes calldata keySignature)
        external
        returns (uint32 node);
    /// Adds to the bond of a node in service; anyone may. Brings a slashed node back to its minimum, or keeps a margin above
    /// it, so that one penalty does not take the node out of service.
    function topUp(uint32 node, uint128 amount) external;
    /// Takes a node out of service: it is no longer listed or drawn. Its bond stays slashable until withdrawn.
    function retire(uint32 node) external;
    /// Pays what is left of a retired node's bond to its owner, after the unbonding delay and with nothing in flight.
    function withdraw(uint32 node) external returns (uint256 amount);
    /// Replaces the node key, or gives a new one to a node whose key was revoked; the new key consents with the same
    /// `NodeBinding`. A key is bound once: one that was rotated out, revoked or withdrawn can never be bound again.
    function rotateKey(uint32 node, address key, uint256 deadline, bytes calldata keySignature) external;
    /// Ends the node key at once: nothing it signs counts any more, and the node is not listed or drawn until it has a new key.
    /// @dev A validator with a seat can no longer vote there and pays for its absence.
    function revokeKey(uint32 node) external;
    /// Spends the caller's EIP-2612 permit for this contract. A permit somebody else has spent already is no error: the
    /// allowance is there all the same.
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;
    /// Sends what was slashed to the treasury. Anyone may.
    function sweep() external returns (uint256 amount);

    /// Rounds only: counts the jobs of packed assignments in flight; refuses a node that is not listable or would pass its
    /// capacity. Returns how many they are in all.
    function reserveJobs(bytes calldata assignments) external returns (uint256 jobs);
    /// Rounds only: counts the jobs of packed assignments as no longer in flight. Returns the owner of each listed node, to whom
    /// its pay goes.
    function freeJobs(bytes calldata assignments) external returns (address[] memory owners);
    /// Rounds only: moves min(amount, bond), unbonding or not, to what the treasury is owed. Returns what was taken.
    function slash(uint32 node, uint256 round, Cause cause, uint256 amount) external returns (uint256 taken);
    /// Rounds only: turns `amount` of what was slashed into credits of `owner`.
    function award(address owner, uint256 round, uint256 amount) external;

    function nodeCount() external view returns (uint32);
    /// Reverts `UnknownNode` for an id never given.
    function nodeOf(uint32 node) external view returns (Node memory);
    /// 0 where the key is bound to no node.
    function nodeByKey(address key) external view returns (uint32);
    /// The bond a node must hold to be listable.
    function requiredBond(Role role, uint32 capacity) external view returns (uint256);
    /// In service, active by now, holding its required bond and a key.
    function isListable(uint32 node) external view returns (bool);
    /// Reverts `UnknownNode` for an id never given.
    function ownerOf(uint32 node) external view returns (address);
    /// The session key; zero while it is revoked and once the bond is withdrawn. Reverts `UnknownNode` for an id never given.
    function keyOf(uint32 node) external view returns (address);
    /// The session keys of many nodes; zero where there is no such node as well.
    function keysOf(uint32[] calldata nodes) external view returns (address[] memory);
    /// Bitmap of the slots whose validator may be drawn now: in service, active, holding its bond and a key.
    function eligible() external view returns (uint256 slots);
    /// The validator at a slot; 0 where it is free. A slot is freed when its bond is withdrawn, so that it keeps its node
    /// through every round that was opened while the node could be drawn.
    function nodeAt(uint8 slot) external view returns (uint32 node);
    /// Highest slot ever taken, plus one. At most 256.
    function slotCount() external view returns (uint16);
    function terms() external view returns (RegistryTerms memory);
    /// Slashed and neither swept nor awarded.
    function treasuryBalance() external view returns (uint256);
    function admin() external view returns (IAdmin);
    function credits() external view returns (ICredits);
    function token() external view returns (IERC20);
    function rounds() external view returns (address);
    /// The contract's total of bonds, unbonding ones included.
    function totalBonded() external view returns (uint256);
}
