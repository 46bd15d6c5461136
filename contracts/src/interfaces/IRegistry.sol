// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IAdmin} from "./IAdmin.sol";
import {ICredits} from "./ICredits.sol";

/// Role of a node, fixed for life. All nodes of an owner have the same role.
enum Role {
    None,
    Worker,
    Validator
}

/// Why a bond was slashed.
enum Cause {
    /// A worker's job was judged fraudulent.
    Fraud,
    /// A juror did not commit or did not reveal.
    Absence,
    /// A juror accepted what an appeal condemned, or condemned what it accepted.
    Overturned
}

/// A registered node.
/// @param owner      account that posted the bond and earns the credits
/// @param role       worker or validator
/// @param slot       validator: its slot, 0 to 255, or the slot that it waits for, waited for or had; worker: 0
/// @param capacity   worker: maximum jobs in flight; validator: 1
/// @param inFlight   worker: jobs listed and neither settled nor freed; validator: 0
/// @param activeAt   timestamp in seconds from which the node may be listed or drawn; 2^40 - 1 for a newcomer that waits
///                   for a slot, or did not get one
/// @param retiredAt  timestamp in seconds of its retirement; 0 while in service
/// @param bond       wei at stake, until withdrawn
/// @param revoked    the key was revoked and not replaced; the node is neither listed nor drawn
/// @param withdrawn  the bond was paid out; the node cannot return
/// @param key        session key; signs submissions (worker) or sends votes (validator); zero while revoked or
///                   withdrawn
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

/// Protocol-wide bonds and delays, fixed at deployment.
/// @param bondPerJob       worker bond in wei for each unit of capacity
/// @param validatorBond    bond of a validator in wei
/// @param activationDelay  seconds from registration to `activeAt`
/// @param unbondingDelay   seconds from retirement to withdrawal; more than the market's maxRoundSeconds
struct RegistryTerms {
    uint128 bondPerJob;
    uint128 validatorBond;
    uint40 activationDelay;
    uint40 unbondingDelay;
}

/// @title IRegistry
/// @notice Nodes, their session keys and their bonds. Node ids start at 1.
/// @notice Slashed bonds stay here until they are swept to the treasury or awarded to an appellant; jurors never
/// receive them.
/// @notice There are 256 slots for validators. Once all are taken, a newcomer contests the one with the least bond: it
/// posts a quarter more. The holder keeps its slot by topping up to as much within the activation delay. Otherwise it is
/// displaced: it counts as retired, with its bond locked for the unbonding delay, and serves the rounds that are open. The
/// slot is nobody's in rounds opened within a longest round (the market's maxRoundSeconds) from then, and the newcomer's in
/// later ones. A newcomer that was matched has its bond back at once.
/// @notice There are sixteen turns, one for each contest: it lasts until the holder matches, or until an unbonding delay
/// after the slot has passed. So at most a sixteenth of the slots changes hands in an unbonding delay. To keep newcomers out
/// for longer than that, who holds all slots has to match: each contest won costs a quarter of a bond more, locked, and all
/// turns together at most sixteen in an activation delay. Contesting one's own slots takes turns from others, and raises
/// the same bonds; a turn is taken for an unbonding delay only by a bond one and a quarter times the least.
/// @dev Invariant: token.balanceOf(this) >= totalBonded() + treasuryBalance().
/// @dev Assumes a token that transfers exact amounts and does not call back.
/// @dev Also an OpenZeppelin `Multicall`: `multicall` joins `selfPermit` and `register` in one transaction.
/// @dev Constructor: IERC20 token, IAdmin admin, ICredits credits, address rounds, RegistryTerms terms.
interface IRegistry {
    /// @notice A node was registered and its bond taken.
    /// @param node      id of the node
    /// @param owner     its owner
    /// @param key       its session key
    /// @param role      worker or validator
    /// @param slot      validator: its slot, or the one it contests; worker: 0
    /// @param capacity  maximum jobs in flight
    /// @param bond      wei taken; of a newcomer without what it posts beyond the required bond, see `BondToppedUp`
    /// @param activeAt  timestamp in seconds from which it may be listed or drawn; 2^40 - 1 for a newcomer
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

    /// @notice A bond was increased.
    /// @param node    id of the node
    /// @param owner   its owner, not necessarily the payer
    /// @param amount  wei added
    /// @param bond    the bond now
    event BondToppedUp(uint32 indexed node, address indexed owner, uint256 amount, uint256 bond);

    /// @notice A newcomer waits for a validator's slot.
    /// @param slot      the slot
    /// @param holder    id of the validator that holds it
    /// @param newcomer  id of the one that waits
    /// @param bond      wei that the newcomer posted, and the holder's bond must reach
    /// @param until     timestamp in seconds before which it must
    event SlotContested(uint8 indexed slot, uint32 indexed holder, uint32 indexed newcomer, uint256 bond, uint40 until);

    /// @notice The holder of a contested slot matched the newcomer's bond. The newcomer is retired, its bond withdrawable.
    /// @param slot      the slot
    /// @param holder    id of the validator that keeps it
    /// @param newcomer  id of the one that waited
    event SlotKept(uint8 indexed slot, uint32 indexed holder, uint32 indexed newcomer);

    /// @notice A contested slot passed to the newcomer; its holder was retired, if it was not already.
    /// @param slot       the slot
    /// @param displaced  id of the validator that held it; draws of rounds opened so far still seat it
    /// @param newcomer   id of the validator that holds it now
    /// @param activeAt   timestamp in seconds from which the newcomer may be drawn
    event SlotPassed(uint8 indexed slot, uint32 indexed displaced, uint32 indexed newcomer, uint40 activeAt);

    /// @notice A node was taken out of service.
    /// @param node            id of the node
    /// @param owner           its owner
    /// @param retiredAt       timestamp in seconds
    /// @param withdrawableAt  timestamp in seconds from which the bond can be withdrawn; a newcomer's that got no slot at
    ///                        once
    event NodeRetired(uint32 indexed node, address indexed owner, uint40 retiredAt, uint40 withdrawableAt);

    /// @notice The rest of a retired node's bond was paid out.
    /// @param node    id of the node
    /// @param owner   its owner and the receiver
    /// @param amount  wei paid, possibly zero
    event BondWithdrawn(uint32 indexed node, address indexed owner, uint256 amount);

    /// @notice A bond was slashed.
    /// @param node    id of the node
    /// @param owner   its owner
    /// @param round   number of the round; the appeal's number for absence from an appeal, but the number of the round
    ///                appealed against for the consequences of its verdict
    /// @param cause   why
    /// @param amount  wei taken: at most the bond, possibly zero
    /// @param bond    the bond left
    event NodeSlashed(
        uint32 indexed node, address indexed owner, uint256 indexed round, Cause cause, uint256 amount, uint256 bond
    );

    /// @notice A node has a new session key.
    /// @param node   id of the node
    /// @param owner  its owner
    /// @param key    the new key
    event KeyRotated(uint32 indexed node, address indexed owner, address indexed key);

    /// @notice A session key was revoked.
    /// @param node   id of the node
    /// @param owner  its owner
    /// @param key    the revoked key
    event KeyRevoked(uint32 indexed node, address indexed owner, address indexed key);

    /// @notice Slashed tokens were sent to the treasury.
    /// @param treasury  receiver
    /// @param amount    wei
    event TreasurySwept(address indexed treasury, uint256 amount);

    /// @notice Slashed tokens were turned into credits of an appellant.
    /// @param owner   the appellant
    /// @param round   number of the round appealed against
    /// @param amount  wei
    event SlashesAwarded(address indexed owner, uint256 indexed round, uint256 amount);

    /// @notice The function is for the node's owner only.
    /// @param node    id of the node
    /// @param owner   its owner
    /// @param caller  the caller
    error NotOwner(uint32 node, address owner, address caller);

    /// @notice The function is for `Rounds` only.
    /// @param caller  the caller
    error NotRounds(address caller);

    /// @notice No node has this id.
    /// @param node  the id
    error UnknownNode(uint32 node);

    /// @notice The role is `None`.
    error UnknownRole();

    /// @notice The key is or was bound to a node.
    /// @param key   the key
    /// @param node  id of that node
    error KeyInUse(address key, uint32 node);

    /// @notice The node key did not sign its binding.
    /// @param recovered  the signer; zero if the signature is malformed
    /// @param key        the key given
    error BadKeySignature(address recovered, address key);

    /// @notice The signature's deadline has passed.
    /// @param deadline  timestamp in seconds
    /// @param now_      timestamp of the block
    error SignatureExpired(uint256 deadline, uint256 now_);

    /// @notice The owner registered a node of the other role before. The role is fixed even if it has no nodes left.
    /// @param owner  the caller
    /// @param role   its role
    error OwnerHasOtherRole(address owner, Role role);

    /// @notice All 256 validator slots are taken: `contest` one.
    error NoFreeSlot();

    /// @notice A validator slot is free: `register` takes it.
    error SlotsFree();

    /// @notice All sixteen turns are taken by contests and by slots that passed within an unbonding delay.
    error TooManyContests();

    /// @notice The node waits for a slot. Its bond is what the holder has to match, so it neither changes nor retires.
    /// @param node  id of the node
    error WaitsForSlot(uint32 node);

    /// @notice The node does not wait for a slot.
    /// @param node  id of the node
    error NotWaiting(uint32 node);

    /// @notice The holder of the slot may still match the newcomer's bond.
    /// @param newcomer  id of the newcomer
    /// @param until     timestamp in seconds from which it may not
    error StillMatchable(uint32 newcomer, uint256 until);

    /// @notice The amount is zero.
    error ZeroAmount();

    /// @notice The capacity is zero.
    error ZeroCapacity();

    /// @notice A validator's capacity must be 1.
    /// @param capacity  the capacity given
    error NotOneTicket(uint32 capacity);

    /// @notice The node is retired.
    /// @param node  id of the node
    error AlreadyRetired(uint32 node);

    /// @notice The node is not retired.
    /// @param node  id of the node
    error NotRetired(uint32 node);

    /// @notice The bond was withdrawn.
    /// @param node  id of the node
    error AlreadyWithdrawn(uint32 node);

    /// @notice The key is revoked.
    /// @param node  id of the node
    error AlreadyRevoked(uint32 node);

    /// @notice The bond cannot be withdrawn yet.
    /// @param node            id of the node
    /// @param withdrawableAt  timestamp in seconds at which the unbonding delay ends
    /// @param inFlight        jobs in flight
    error StillBonded(uint32 node, uint256 withdrawableAt, uint32 inFlight);

    /// @notice The node is a validator, retired, not active yet, below its required bond, or without a key.
    /// @param node  id of the node
    error NotListable(uint32 node);

    /// @notice The node would exceed its capacity.
    /// @param node      id of the node
    /// @param inFlight  jobs in flight with those asked for
    /// @param capacity  its capacity
    error OverCapacity(uint32 node, uint32 inFlight, uint32 capacity);

    /// @notice Registers a node and takes its required bond from the caller's tokens. The caller becomes its owner.
    /// @dev The node key consents by an EIP-712 signature over `NodeBinding(address owner,address key,uint8 role,uint32
    /// capacity,uint256 deadline)` in the domain ("Assize Registry", "1", chain id, this contract). Signatures are 65
    /// bytes: r, s, v with v 27 or 28 and s in the lower half order.
    /// @dev A validator gets the lowest free slot.
    /// @param role          worker or validator; must equal the role of the caller's other nodes, present and past
    /// @param key           session key, never bound before
    /// @param capacity      worker: maximum jobs in flight, not zero; validator: 1
    /// @param deadline      last timestamp in seconds at which the signature is valid
    /// @param keySignature  by `key` over the binding
    /// @return node  id of the new node
    function register(Role role, address key, uint32 capacity, uint256 deadline, bytes calldata keySignature)
        external
        returns (uint32 node);

    /// @notice Registers a validator, once all slots are taken, as a newcomer to the slot with the least bond, and takes what
    /// `nextContest` says from the caller's tokens. The caller becomes its owner.
    /// @dev Signature and errors as of `register`, and `SlotsFree` and `TooManyContests`. Emits `NodeRegistered` with the
    /// required bond and `BondToppedUp` with the rest, then `SlotContested`. The slot is chosen here, the lowest of those
    /// with the least bond, among slots that are not contested; reads all of them, about 1,200,000 gas.
    /// @dev The bond may be more by the time of the call: an allowance of the amount seen bounds it.
    /// @param key           session key, never bound before
    /// @param deadline      last timestamp in seconds at which the signature is valid
    /// @param keySignature  by `key` over the `NodeBinding` of `register`, with the validator's role and capacity 1
    /// @return node  id of the newcomer
    function contest(address key, uint256 deadline, bytes calldata keySignature) external returns (uint32 node);

    /// @notice Passes a contested slot, not matched in time, from its holder to the newcomer. Anyone may call it.
    /// @dev Emits `NodeRetired` for the holder unless it was retired, then `SlotPassed`. A holder that has withdrawn
    /// meanwhile leaves its slot to the newcomer.
    /// @param newcomer  id of the validator that waits
    function displace(uint32 newcomer) external;

    /// @notice Adds the caller's tokens to the bond of a node that is not retired. Anyone may call it.
    /// @dev Ends the contest of a validator's slot if its bond then reaches the newcomer's in time.
    /// @dev Restores a slashed node to its required bond, or adds a margin, so that one penalty does not take it out of
    /// service.
    /// @param node    id of the node
    /// @param amount  wei, not zero
    function topUp(uint32 node, uint128 amount) external;

    /// @notice Takes a node out of service: it is no longer listed or drawn. Owner only.
    /// @dev Reverts `WaitsForSlot` for a newcomer, whose slot or bond comes in any case.
    /// @dev Its bond can be slashed until it is withdrawn.
    /// @param node  id of the node
    function retire(uint32 node) external;

    /// @notice Pays the rest of a retired node's bond to its owner. Owner only, after the unbonding delay, with no job
    /// in flight; at once for a newcomer that got no slot.
    /// @dev Unbinds the key and frees a validator's slot, unless it has passed to another or is contested.
    /// @param node  id of the node
    /// @return amount  wei paid
    function withdraw(uint32 node) external returns (uint256 amount);

    /// @notice Replaces a node's key, revoked or not. Owner only.
    /// @dev A key is bound once: one that was rotated out, revoked or withdrawn cannot be bound again.
    /// @param node          id of the node
    /// @param key           new session key, never bound before
    /// @param deadline      last timestamp in seconds at which the signature is valid
    /// @param keySignature  by `key` over the `NodeBinding` of `register`, with the node's role and capacity
    function rotateKey(uint32 node, address key, uint256 deadline, bytes calldata keySignature) external;

    /// @notice Invalidates a node's key at once. Owner only.
    /// @dev The node is neither listed nor drawn until it has a new key.
    /// @dev A seated validator cannot vote without a key: unless it rotates in a new one in time, it pays the absence
    /// penalty.
    /// @param node  id of the node
    function revokeKey(uint32 node) external;

    /// @notice Uses the caller's EIP-2612 permit for this contract.
    /// @dev A permit that fails is ignored, as it may have been used by a transaction that copied it.
    /// @param amount    allowance in wei
    /// @param deadline  timestamp in seconds
    /// @param v         27 or 28
    /// @param r         first word of the signature
    /// @param s         second word of the signature
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Sends all slashed tokens that were not awarded to the treasury. Anyone may call it.
    /// @return amount  wei sent, not zero
    function sweep() external returns (uint256 amount);

    /// @notice Counts listed jobs as in flight. `Rounds` only.
    /// @dev Reverts `UnknownNode`, `NotListable` or `OverCapacity` if a node cannot take its jobs. A node may be listed
    /// more than once.
    /// @param assignments  packed as for `IRounds.open`
    /// @return jobs  number of jobs
    function reserveJobs(bytes calldata assignments) external returns (uint256 jobs);

    /// @notice Counts listed jobs as no longer in flight. `Rounds` only.
    /// @param assignments  packed as for `IRounds.open`
    /// @return owners  owner of each listing's node, in order
    function freeJobs(bytes calldata assignments) external returns (address[] memory owners);

    /// @notice Takes min(amount, bond) from a node's bond, unbonding or not, and keeps it for the treasury. `Rounds`
    /// only.
    /// @param node    id of the node
    /// @param round   number of the round
    /// @param cause   why
    /// @param amount  wei
    /// @return taken  wei taken
    function slash(uint32 node, uint256 round, Cause cause, uint256 amount) external returns (uint256 taken);

    /// @notice Turns slashed tokens into credits of an appellant. `Rounds` only.
    /// @param owner   the appellant
    /// @param round   number of the round appealed against
    /// @param amount  wei, at most `treasuryBalance`
    function award(address owner, uint256 round, uint256 amount) external;

    /// @notice Number of nodes ever registered; also the newest id.
    function nodeCount() external view returns (uint32);

    /// @notice A node. Reverts `UnknownNode` for an id never given.
    function nodeOf(uint32 node) external view returns (Node memory);

    /// @notice Id of the node a key is bound to now; 0 if none.
    function nodeByKey(address key) external view returns (uint32);

    /// @notice Bond in wei a node must hold to be listed or drawn: validatorBond, or bondPerJob * capacity. Reverts
    /// `UnknownRole`.
    function requiredBond(Role role, uint32 capacity) external view returns (uint256);

    /// @notice True if the node is not retired, active, holds its required bond and has a key. Reverts `UnknownNode`.
    /// @dev Also true of validators, which `reserveJobs` refuses.
    function isListable(uint32 node) external view returns (bool);

    /// @notice Owner of a node. Reverts `UnknownNode`.
    function ownerOf(uint32 node) external view returns (address);

    /// @notice Session key of a node; zero while revoked and after withdrawal. Reverts `UnknownNode`.
    function keyOf(uint32 node) external view returns (address);

    /// @notice Session keys of many nodes, in order; zero also for an unknown id.
    function keysOf(uint32[] calldata nodes) external view returns (address[] memory);

    /// @notice Bitmap of the slots whose validator may be drawn now: not retired, active, with its required bond and a
    /// key.
    /// @return slots  bit i stands for slot i
    function eligible() external view returns (uint256 slots);

    /// @notice Slots that have passed from one validator to another, for contracts that keep bitmaps of slots.
    /// @dev Costs at most one read for each slot asked about, however often slots passed.
    /// @param since      number of passings already taken into account
    /// @param slots      bitmap of the slots asked about
    /// @return passed    bitmap of those that passed since
    /// @return passings  number of passings so far
    function passedSince(uint256 since, uint256 slots) external view returns (uint256 passed, uint256 passings);

    /// @notice Id of the validator that a draw seats at a slot; 0 if the slot is free.
    /// @dev That is the displaced one until the newcomer is active. A slot is freed at withdrawal only. The unbonding delay
    /// exceeds maxRoundSeconds, so a slot keeps its node through every round that was opened while the node could be drawn.
    function nodeAt(uint8 slot) external view returns (uint32 node);

    /// @notice Id of the validator that holds a slot, active or not yet; 0 if the slot is free. Consent that is kept by
    /// slots is the holder's.
    function holderOf(uint8 slot) external view returns (uint32 node);

    /// @notice Who waits for a slot; zeros if nobody does.
    /// @return newcomer  id of the one that waits
    /// @return until     timestamp in seconds: before it the holder may match the newcomer's bond, from it on anyone may
    ///                   call `displace`
    function contestOf(uint8 slot) external view returns (uint32 newcomer, uint40 until);

    /// @notice The slot that a newcomer would contest, and the bond it would post. Reverts `SlotsFree`.
    /// @return slot  lowest of the slots with the least bond that are not contested
    /// @return bond  wei: a quarter more than that bond, rounded up, and at least the required one
    function nextContest() external view returns (uint8 slot, uint128 bond);

    /// @notice Highest slot ever taken, plus one; at most 256.
    function slotCount() external view returns (uint16);

    /// @notice Protocol-wide bonds and delays.
    function terms() external view returns (RegistryTerms memory);

    /// @notice Slashed wei, neither swept nor awarded.
    function treasuryBalance() external view returns (uint256);

    /// @notice The contract that names the treasury.
    function admin() external view returns (IAdmin);

    /// @notice The contract that receives awards.
    function credits() external view returns (ICredits);

    /// @notice The token bonds are posted in.
    function token() external view returns (IERC20);

    /// @notice The only caller of `reserveJobs`, `freeJobs`, `slash` and `award`.
    function rounds() external view returns (address);

    /// @notice Sum of all bonds in wei, unbonding ones included.
    function totalBonded() external view returns (uint256);
}
