// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {IAdmin} from "./interfaces/IAdmin.sol";
import {ICredits} from "./interfaces/ICredits.sol";
import {Cause, IRegistry, Node, RegistryTerms, Role} from "./interfaces/IRegistry.sol";
import {IRoundsFacts} from "./interfaces/IRounds.sol";
import {Assignments} from "./libraries/Assignments.sol";
import {ExactTransfer} from "./libraries/ExactTransfer.sol";
import {Loads} from "./libraries/Loads.sol";
import {Permits} from "./libraries/Permits.sol";

/// @title Registry
/// @notice Implements `IRegistry`.
contract Registry is IRegistry, EIP712, Multicall {
    using SafeERC20 for IERC20;
    using ExactTransfer for IERC20;
    using Permits for IERC20;
    using SafeCast for uint256;

    /// A node as stored, in three words, without its load (see `Loads`).
    struct Record {
        address owner;
        uint32 capacity;
        Role role;
        uint8 slot;
        bool revoked;
        bool withdrawn;
        address key;
        uint40 activeAt;
        uint40 retiredAt;
        uint128 bond;
    }

    /// A newcomer that waits for a slot.
    /// @param until  timestamp in seconds from which the holder can no longer match its bond
    /// @param turn   which of the turns this contest has
    struct Contest {
        uint32 newcomer;
        uint40 until;
        uint8 turn;
    }

    /// The node a key was bound to, and whether it still is.
    struct Binding {
        uint32 node;
        bool present;
    }

    uint256 private constant MAX_SLOTS = 256;
    /// Slots that may be contested or change hands within an unbonding delay: a sixteenth.
    uint256 private constant TURNS = 16;
    /// A newcomer posts the least bond and a quarter of it.
    uint256 private constant QUARTER = 4;
    /// Added to a holder that displaced another, which draws of older rounds may still seat. No node has so high an id: to
    /// register as many takes more gas than a chain has in decades.
    uint32 private constant HEIR = 1 << 31;
    /// `activeAt` of a newcomer that waits for a slot, or waited in vain.
    uint40 private constant NEVER = type(uint40).max;
    bytes32 private constant NODE_BINDING =
        keccak256("NodeBinding(address owner,address key,uint8 role,uint32 capacity,uint256 deadline)");

    /// @inheritdoc IRegistry
    IERC20 public immutable token;
    /// @inheritdoc IRegistry
    IAdmin public immutable admin;
    /// @inheritdoc IRegistry
    ICredits public immutable credits;
    /// @inheritdoc IRegistry
    address public immutable rounds;
    uint128 private immutable BOND_PER_JOB;
    uint128 private immutable VALIDATOR_BOND;
    uint40 private immutable ACTIVATION_DELAY;
    uint40 private immutable UNBONDING_DELAY;

    /// @inheritdoc IRegistry
    uint32 public nodeCount;
    /// @inheritdoc IRegistry
    uint16 public slotCount;
    /// Latest activation time of a validator. From then on every serving validator is active.
    uint40 private _lastActiveAt;
    /// Sum of all bonds. Shares a word with `_slashed`, as a slash moves an amount from one to the other.
    uint128 private _bonded;
    /// Slashed amounts neither swept nor awarded.
    uint128 private _slashed;
    /// Bitmap of slots that hold a node. A slot is freed when its bond is withdrawn.
    uint256 private _taken;
    /// Bitmap of slots whose validator is in service with its required bond and a key, active or not yet.
    uint256 private _serving;
    /// Number of times that a slot passed from one validator to another.
    uint256 private _passings;
    /// Number of passings after the latest one of each slot; zero if it never passed.
    uint32[256] private _passedAt;
    /// The holder of each slot, active or not yet, perhaps with `HEIR`; zero if the slot is free.
    uint32[256] private _held;
    /// Valid for slots with an heir: whom it displaced.
    uint32[256] private _before;
    uint40[256] private _activeAt;
    /// Bitmap of slots that a newcomer waits for.
    uint256 private _contested;
    /// Valid for contested slots.
    mapping(uint256 slot => Contest) private _contests;
    /// Timestamps from which another slot may be contested in each turn.
    uint40[TURNS] private _freeFrom;
    mapping(uint32 => Record) private _nodes;
    /// Free capacity and readiness of workers, see `Loads`.
    mapping(uint256 => uint256) private _loads;
    mapping(address => Role) private _roleOf;
    /// Entries are never deleted: a key once rotated out, revoked or withdrawn cannot be bound again.
    mapping(address => Binding) private _boundTo;

    /// @param token_    ERC-20 that bonds are posted in
    /// @param admin_    names the treasury
    /// @param credits_  grants awards as credits
    /// @param rounds_   address at which `Rounds` will be deployed
    /// @param terms_    protocol-wide bonds and delays, fixed for good
    constructor(IERC20 token_, IAdmin admin_, ICredits credits_, address rounds_, RegistryTerms memory terms_)
        EIP712("Assize Registry", "1")
    {
        token = token_;
        admin = admin_;
        credits = credits_;
        rounds = rounds_;
        BOND_PER_JOB = terms_.bondPerJob;
        VALIDATOR_BOND = terms_.validatorBond;
        ACTIVATION_DELAY = terms_.activationDelay;
        UNBONDING_DELAY = terms_.unbondingDelay;
    }

    modifier onlyRounds() {
        if (msg.sender != rounds) revert NotRounds(msg.sender);
        _;
    }

    /// @inheritdoc IRegistry
    function register(Role role, address key, uint32 capacity, uint256 deadline, bytes calldata keySignature)
        external
        returns (uint32 node)
    {
        node = _bindNode(role, key, capacity, deadline, keySignature);
        uint40 activeAt = (block.timestamp + ACTIVATION_DELAY).toUint40();
        uint8 slot = role == Role.Validator ? _takeSlot(node, activeAt) : 0;
        uint128 bond = _enter(node, key, role, slot, capacity, activeAt);
        if (role == Role.Worker) Loads.start(_loads, node, capacity, uint256(activeAt).toUint32());
        token.take(msg.sender, bond);
    }

    /// @inheritdoc IRegistry
    function contest(address key, uint256 deadline, bytes calldata keySignature) external returns (uint32 node) {
        node = _bindNode(Role.Validator, key, 1, deadline, keySignature);
        (uint8 slot, uint128 bond) = nextContest();
        uint40 until = (block.timestamp + ACTIVATION_DELAY).toUint40();
        _contests[slot] = Contest({newcomer: node, until: until, turn: _takeTurn()});
        _contested |= uint256(1) << slot;
        uint128 surplus = bond - _enter(node, key, Role.Validator, slot, 1, NEVER);
        _nodes[node].bond = bond;
        _bonded += surplus;
        emit BondToppedUp(node, msg.sender, surplus, bond);
        emit SlotContested(slot, holderOf(slot), node, bond, until);
        token.take(msg.sender, bond);
    }

    /// @inheritdoc IRegistry
    function displace(uint32 newcomer) external {
        Record storage entering = _known(newcomer);
        if (entering.activeAt != NEVER || entering.retiredAt != 0) revert NotWaiting(newcomer);
        uint8 slot = entering.slot;
        Contest memory ended = _contests[slot];
        if (block.timestamp < ended.until) revert StillMatchable(newcomer, ended.until);
        uint32 displaced = holderOf(slot);
        Record storage leaving = _nodes[displaced];
        if (leaving.retiredAt == 0) _retire(displaced, leaving);
        // The last draw of a round that was opened at this moment comes no later than the second before.
        uint256 longest = IRoundsFacts(rounds).market().terms().maxRoundSeconds;
        uint40 activeAt = (block.timestamp + longest + 1).toUint40();
        entering.activeAt = activeAt;
        _succeed(slot, newcomer, activeAt);
        _recordService(newcomer, entering);
        _endContest(slot, ended.turn, (block.timestamp + UNBONDING_DELAY).toUint40());
        emit SlotPassed(slot, displaced, newcomer, activeAt);
    }

    /// @inheritdoc IRegistry
    function topUp(uint32 node, uint128 amount) external {
        if (amount == 0) revert ZeroAmount();
        Record storage stored = _known(node);
        if (stored.retiredAt != 0) revert AlreadyRetired(node);
        if (stored.activeAt == NEVER) revert WaitsForSlot(node);
        uint128 bond = stored.bond + amount;
        stored.bond = bond;
        _bonded += amount;
        _recordService(node, stored);
        emit BondToppedUp(node, stored.owner, amount, bond);
        if (stored.role == Role.Validator) _match(stored.slot, node, bond);
        token.take(msg.sender, amount);
    }

    /// @inheritdoc IRegistry
    function retire(uint32 node) external {
        Record storage stored = _owned(node);
        if (stored.retiredAt != 0) revert AlreadyRetired(node);
        if (stored.activeAt == NEVER) revert WaitsForSlot(node);
        _retire(node, stored);
    }

    /// @inheritdoc IRegistry
    function withdraw(uint32 node) external returns (uint256 amount) {
        Record storage stored = _owned(node);
        if (stored.retiredAt == 0) revert NotRetired(node);
        if (stored.withdrawn) revert AlreadyWithdrawn(node);
        uint256 withdrawableAt = _withdrawableAt(stored);
        uint32 inFlight = _inFlight(node, stored);
        if (block.timestamp < withdrawableAt || inFlight != 0) revert StillBonded(node, withdrawableAt, inFlight);
        amount = stored.bond;
        stored.bond = 0;
        stored.withdrawn = true;
        _unbindKey(stored);
        _bonded -= amount.toUint128();
        if (stored.role == Role.Validator) _freeSlot(stored.slot, node);
        emit BondWithdrawn(node, msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IRegistry
    function rotateKey(uint32 node, address key, uint256 deadline, bytes calldata keySignature) external {
        Record storage stored = _owned(node);
        if (stored.withdrawn) revert AlreadyWithdrawn(node);
        _bindKey(node, msg.sender, key, stored.role, stored.capacity, deadline, keySignature);
        _unbindKey(stored);
        stored.key = key;
        stored.revoked = false;
        _recordService(node, stored);
        emit KeyRotated(node, msg.sender, key);
    }

    /// @inheritdoc IRegistry
    function revokeKey(uint32 node) external {
        Record storage stored = _owned(node);
        if (stored.withdrawn) revert AlreadyWithdrawn(node);
        if (stored.revoked) revert AlreadyRevoked(node);
        address key = stored.key;
        _unbindKey(stored);
        stored.revoked = true;
        _recordService(node, stored);
        emit KeyRevoked(node, msg.sender, key);
    }

    /// @inheritdoc IRegistry
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external {
        token.spend(amount, deadline, v, r, s);
    }

    /// @inheritdoc IRegistry
    function sweep() external returns (uint256 amount) {
        amount = _slashed;
        if (amount == 0) revert ZeroAmount();
        _slashed = 0;
        address treasury = admin.treasury();
        emit TreasurySwept(treasury, amount);
        token.safeTransfer(treasury, amount);
    }

    /// @inheritdoc IRegistry
    function reserveJobs(bytes calldata assignments) external onlyRounds returns (uint256 jobs) {
        uint256 length = Assignments.listings(assignments);
        uint256 index = Loads.indexOf(Assignments.first(assignments));
        uint256 word = _loads[index];
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = Assignments.read(assignments, i);
            if (Loads.indexOf(node) != index) (index, word) = _switchWord(index, word, node);
            (uint256 room, uint256 from) = Loads.read(word, node);
            if (from == 0 || block.timestamp < from || count > room) _refuse(node, room, from, count);
            unchecked {
                word -= Loads.jobs(node, count);
                jobs += count;
            }
        }
        _loads[index] = word;
    }

    /// @inheritdoc IRegistry
    function freeJobs(bytes calldata assignments) external onlyRounds returns (address[] memory owners) {
        uint256 length = Assignments.listings(assignments);
        owners = new address[](length);
        uint256 index = Loads.indexOf(Assignments.first(assignments));
        uint256 word = _loads[index];
        for (uint256 i; i < length; ++i) {
            (uint32 node, uint256 count) = Assignments.read(assignments, i);
            if (Loads.indexOf(node) != index) (index, word) = _switchWord(index, word, node);
            Record storage stored = _nodes[node];
            owners[i] = stored.owner;
            // The time from which the node may be listed is not needed here.
            // slither-disable-next-line unused-return
            (uint256 room,) = Loads.read(word, node);
            // More than were in flight would overflow into the neighbouring node's load.
            assert(room + count <= stored.capacity);
            unchecked {
                word += Loads.jobs(node, count);
            }
        }
        _loads[index] = word;
    }

    /// @inheritdoc IRegistry
    function slash(uint32 node, uint256 round, Cause cause, uint256 amount)
        external
        onlyRounds
        returns (uint256 taken)
    {
        Record storage stored = _known(node);
        uint128 bond = stored.bond;
        taken = Math.min(amount, bond);
        // At most the bond, so it fits in 128 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        uint128 part = uint128(taken);
        bond -= part;
        stored.bond = bond;
        _bonded -= part;
        _slashed += part;
        _recordService(node, stored);
        emit NodeSlashed(node, stored.owner, round, cause, taken, bond);
    }

    /// @inheritdoc IRegistry
    function award(address owner, uint256 round, uint256 amount) external onlyRounds {
        _slashed -= amount.toUint128();
        emit SlashesAwarded(owner, round, amount);
        token.safeTransfer(address(credits), amount);
        credits.grant(owner, round, amount);
    }

    /// @inheritdoc IRegistry
    function totalBonded() external view returns (uint256) {
        return _bonded;
    }

    /// @inheritdoc IRegistry
    function treasuryBalance() external view returns (uint256) {
        return _slashed;
    }

    /// @inheritdoc IRegistry
    function nodeOf(uint32 node) external view returns (Node memory) {
        Record storage stored = _known(node);
        return Node({
            owner: stored.owner,
            role: stored.role,
            slot: stored.slot,
            capacity: stored.capacity,
            inFlight: _inFlight(node, stored),
            activeAt: stored.activeAt,
            retiredAt: stored.retiredAt,
            bond: stored.bond,
            revoked: stored.revoked,
            withdrawn: stored.withdrawn,
            key: stored.key
        });
    }

    /// @inheritdoc IRegistry
    function nodeByKey(address key) external view returns (uint32) {
        Binding storage bound = _boundTo[key];
        return bound.present ? bound.node : 0;
    }

    /// @inheritdoc IRegistry
    function requiredBond(Role role, uint32 capacity) public view returns (uint256) {
        if (role == Role.None) revert UnknownRole();
        return role == Role.Validator ? VALIDATOR_BOND : uint256(BOND_PER_JOB) * capacity;
    }

    /// @inheritdoc IRegistry
    function isListable(uint32 node) external view returns (bool) {
        return _listable(_known(node));
    }

    /// @inheritdoc IRegistry
    function ownerOf(uint32 node) external view returns (address) {
        return _known(node).owner;
    }

    /// @inheritdoc IRegistry
    function keyOf(uint32 node) external view returns (address key) {
        key = _nodes[node].key;
        // Zero means revoked, withdrawn or unknown: `_known` reverts on the last.
        if (key == address(0)) _known(node);
    }

    /// @inheritdoc IRegistry
    function keysOf(uint32[] calldata nodes) external view returns (address[] memory keys) {
        keys = new address[](nodes.length);
        for (uint256 i; i < nodes.length; ++i) {
            keys[i] = _nodes[nodes[i]].key;
        }
    }

    /// @inheritdoc IRegistry
    function eligible() external view returns (uint256 slots) {
        slots = _serving;
        if (block.timestamp >= _lastActiveAt) return slots;
        for (uint256 slot; slot < slotCount; ++slot) {
            if (block.timestamp < _activeAt[slot]) slots &= ~(uint256(1) << slot);
        }
    }

    /// @inheritdoc IRegistry
    function passedSince(uint256 since, uint256 slots) external view returns (uint256 passed, uint256 passings) {
        passings = _passings;
        if (passings == since) return (0, passings);
        for (uint256 slot; slots >> slot != 0; ++slot) {
            uint256 bit = uint256(1) << slot;
            if (slots & bit != 0 && _passedAt[slot] > since) passed |= bit;
        }
    }

    /// @inheritdoc IRegistry
    function nodeAt(uint8 slot) external view returns (uint32) {
        uint32 held = _held[slot];
        if (held & HEIR == 0) return held;
        return block.timestamp < _activeAt[slot] ? _before[slot] : held ^ HEIR;
    }

    /// @inheritdoc IRegistry
    function holderOf(uint8 slot) public view returns (uint32) {
        return _held[slot] & ~HEIR;
    }

    /// @inheritdoc IRegistry
    function contestOf(uint8 slot) external view returns (uint32 newcomer, uint40 until) {
        Contest storage open = _contests[slot];
        if ((_contested >> slot) & 1 == 1) (newcomer, until) = (open.newcomer, open.until);
    }

    /// @inheritdoc IRegistry
    function nextContest() public view returns (uint8 slot, uint128 bond) {
        if (_taken != type(uint256).max) revert SlotsFree();
        uint256 contested = _contested;
        uint256 least = type(uint256).max;
        for (uint256 i; i < MAX_SLOTS; ++i) {
            uint256 posted = _nodes[_held[i] & ~HEIR].bond;
            if ((contested >> i) & 1 == 0 && posted < least) (least, slot) = (posted, i.toUint8());
        }
        bond = Math.max(VALIDATOR_BOND, least + Math.ceilDiv(least, QUARTER)).toUint128();
    }

    /// @inheritdoc IRegistry
    function terms() external view returns (RegistryTerms memory) {
        return RegistryTerms(BOND_PER_JOB, VALIDATOR_BOND, ACTIVATION_DELAY, UNBONDING_DELAY);
    }

    function _known(uint32 node) private view returns (Record storage stored) {
        stored = _nodes[node];
        if (stored.owner == address(0)) revert UnknownNode(node);
    }

    function _owned(uint32 node) private view returns (Record storage stored) {
        stored = _known(node);
        if (stored.owner != msg.sender) revert NotOwner(node, stored.owner, msg.sender);
    }

    /// Stores the current word of loads and reads that of `node`.
    function _switchWord(uint256 index, uint256 word, uint32 node) private returns (uint256, uint256) {
        _loads[index] = word;
        index = Loads.indexOf(node);
        return (index, _loads[index]);
    }

    function _inFlight(uint32 node, Record storage stored) private view returns (uint32) {
        return stored.role == Role.Worker ? stored.capacity - Loads.roomOf(_loads, node) : 0;
    }

    /// Reverts with the reason a node cannot take `count` jobs.
    function _refuse(uint32 node, uint256 room, uint256 servesFrom, uint256 count) private view {
        uint32 capacity = _known(node).capacity;
        if (servesFrom == 0 || block.timestamp < servesFrom) revert NotListable(node);
        revert OverCapacity(node, (capacity - room + count).toUint32(), capacity);
    }

    function _isBonded(Record storage stored) private view returns (bool) {
        return stored.retiredAt == 0 && !stored.revoked && stored.bond >= requiredBond(stored.role, stored.capacity);
    }

    function _listable(Record storage stored) private view returns (bool) {
        return block.timestamp >= stored.activeAt && _isBonded(stored);
    }

    /// Checks role and capacity, and fixes the owner's role on its first registration.
    function _claimRole(address owner, Role role, uint32 capacity) private {
        if (role == Role.None) revert UnknownRole();
        if (capacity == 0) revert ZeroCapacity();
        if (role == Role.Validator && capacity != 1) revert NotOneTicket(capacity);
        Role present = _roleOf[owner];
        if (present == role) return;
        if (present != Role.None) revert OwnerHasOtherRole(owner, present);
        _roleOf[owner] = role;
    }

    /// Gives a new node of the caller its id and its key.
    function _bindNode(Role role, address key, uint32 capacity, uint256 deadline, bytes calldata signature)
        private
        returns (uint32 node)
    {
        _claimRole(msg.sender, role, capacity);
        node = ++nodeCount;
        _bindKey(node, msg.sender, key, role, capacity, deadline, signature);
    }

    /// Stores a node of the caller with its required bond, which remains to be taken.
    function _enter(uint32 node, address key, Role role, uint8 slot, uint32 capacity, uint40 activeAt)
        private
        returns (uint128 bond)
    {
        bond = requiredBond(role, capacity).toUint128();
        _nodes[node] = Record({
            owner: msg.sender,
            capacity: capacity,
            role: role,
            slot: slot,
            revoked: false,
            withdrawn: false,
            key: key,
            activeAt: activeAt,
            retiredAt: 0,
            bond: bond
        });
        _bonded += bond;
        emit NodeRegistered(node, msg.sender, key, role, slot, capacity, bond, activeAt);
    }

    function _retire(uint32 node, Record storage stored) private {
        stored.retiredAt = block.timestamp.toUint40();
        _recordService(node, stored);
        emit NodeRetired(node, stored.owner, stored.retiredAt, _withdrawableAt(stored).toUint40());
    }

    /// A newcomer that got no slot has been at stake for nothing.
    function _withdrawableAt(Record storage stored) private view returns (uint256) {
        return stored.activeAt == NEVER ? stored.retiredAt : uint256(stored.retiredAt) + UNBONDING_DELAY;
    }

    function _bindKey(
        uint32 node,
        address owner,
        address key,
        Role role,
        uint32 capacity,
        uint256 deadline,
        bytes calldata signature
    ) private {
        if (block.timestamp > deadline) revert SignatureExpired(deadline, block.timestamp);
        uint32 user = _boundTo[key].node;
        if (user != 0) revert KeyInUse(key, user);
        bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(NODE_BINDING, owner, key, role, capacity, deadline)));
        // A failed recovery returns the zero address; the reason is not needed.
        // slither-disable-next-line unused-return
        (address recovered,,) = ECDSA.tryRecoverCalldata(digest, signature);
        if (recovered == address(0) || recovered != key) revert BadKeySignature(recovered, key);
        _boundTo[key] = Binding(node, true);
    }

    function _unbindKey(Record storage stored) private {
        _boundTo[stored.key].present = false;
        stored.key = address(0);
    }

    /// Takes the lowest free slot.
    function _takeSlot(uint32 node, uint40 activeAt) private returns (uint8 slot) {
        uint256 taken = _taken;
        if (taken == type(uint256).max) revert NoFreeSlot();
        uint256 lowest = ~taken & (taken + 1);
        slot = Math.log2(lowest).toUint8();
        _taken = taken | lowest;
        _serving |= lowest;
        _hold(slot, node, activeAt);
        if (slot < slotCount) _pass(slot);
        else slotCount = uint16(slot) + 1;
    }

    function _hold(uint8 slot, uint32 held, uint40 activeAt) private {
        _held[slot] = held;
        _activeAt[slot] = activeAt;
        if (activeAt > _lastActiveAt) _lastActiveAt = activeAt;
    }

    /// Passes a slot from the validator displaced to the newcomer. If the displaced was not active itself, rounds that
    /// are still drawn have the one before it.
    function _succeed(uint8 slot, uint32 newcomer, uint40 activeAt) private {
        uint32 held = _held[slot];
        if (held & HEIR == 0 || block.timestamp >= _activeAt[slot]) _before[slot] = held & ~HEIR;
        _hold(slot, newcomer | HEIR, activeAt);
        _pass(slot);
    }

    function _takeTurn() private returns (uint8 turn) {
        while (turn < TURNS && block.timestamp < _freeFrom[turn]) {
            ++turn;
        }
        if (turn == TURNS) revert TooManyContests();
        _freeFrom[turn] = NEVER;
    }

    function _endContest(uint8 slot, uint8 turn, uint40 freeFrom) private {
        _contested &= ~(uint256(1) << slot);
        _freeFrom[turn] = freeFrom;
    }

    /// Ends the contest of a slot whose holder has matched the newcomer's bond in time.
    function _match(uint8 slot, uint32 holder, uint128 bond) private {
        if ((_contested >> slot) & 1 == 0 || holderOf(slot) != holder) return;
        Contest memory open = _contests[slot];
        Record storage newcomer = _nodes[open.newcomer];
        if (block.timestamp >= open.until || bond < newcomer.bond) return;
        _endContest(slot, open.turn, block.timestamp.toUint40());
        emit SlotKept(slot, holder, open.newcomer);
        _retire(open.newcomer, newcomer);
    }

    function _pass(uint256 slot) private {
        _passedAt[slot] = (++_passings).toUint32();
    }

    /// Frees a slot that the node holds and nobody waits for.
    function _freeSlot(uint8 slot, uint32 node) private {
        if (holderOf(slot) != node || (_contested >> slot) & 1 == 1) return;
        _taken &= ~(uint256(1) << slot);
        delete _held[slot];
    }

    /// Updates whether a node may be listed or drawn, after a change of its bond, key or retirement.
    function _recordService(uint32 node, Record storage stored) private {
        if (stored.role == Role.Worker) {
            Loads.setServesFrom(_loads, node, _isBonded(stored) ? uint256(stored.activeAt).toUint32() : 0);
            return;
        }
        // A validator may be slashed when its slot belongs to another, and change its key before it has one.
        if (holderOf(stored.slot) != node) return;
        uint256 bit = uint256(1) << stored.slot;
        _serving = _isBonded(stored) ? _serving | bit : _serving & ~bit;
    }
}
