// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IMarket, Run} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {IRounds, IRoundsFacts, Round, Seat, State} from "./interfaces/IRounds.sol";
import {ITraps, Trap, TrapKind, TrapSet} from "./interfaces/ITraps.sol";
import {Assignments} from "./libraries/Assignments.sol";
import {ExactTransfer} from "./libraries/ExactTransfer.sol";

/// @title Traps
/// @notice Implements `ITraps`.
contract Traps is ITraps {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;
    using ExactTransfer for IERC20;
    using Assignments for Assignments.Place;

    /// @inheritdoc ITraps
    uint256 public constant MAX_SECONDS = 180 days;

    /// @inheritdoc ITraps
    IRounds public immutable rounds;
    /// @inheritdoc ITraps
    IMarket public immutable market;
    /// @inheritdoc ITraps
    IRegistry public immutable registry;
    /// @inheritdoc ITraps
    IERC20 public immutable token;

    /// @inheritdoc ITraps
    uint256 public setCount;
    mapping(uint256 => TrapSet) private _sets;
    /// @inheritdoc ITraps
    mapping(uint256 set => mapping(bytes32 leaf => bool)) public isOpened;
    /// @inheritdoc ITraps
    mapping(uint256 round => uint256) public trapped;

    /// @param rounds_  the rounds whose jobs are trapped
    constructor(IRounds rounds_) {
        rounds = rounds_;
        market = rounds_.market();
        registry = rounds_.registry();
        token = registry.token();
    }

    /// @inheritdoc ITraps
    function set(uint256 run, bytes32 root, uint16 leaves, uint128 bounty, uint48 first, uint40 openBy)
        external
        returns (uint256 number)
    {
        Run memory stored = market.runOf(run);
        if (msg.sender != stored.requester) revert IMarket.NotRequester(run, stored.requester, msg.sender);
        if (stored.terms.appealSeats == 0) revert NoAppeals(run);
        if (leaves == 0) revert BadTraps("leaves");
        if (bounty == 0) revert BadTraps("bounty");
        if (first <= rounds.roundCount()) revert BadTraps("first");
        if (openBy <= block.timestamp || openBy > block.timestamp + MAX_SECONDS) revert BadTraps("openBy");
        number = ++setCount;
        _sets[number] = TrapSet(msg.sender, run.toUint48(), first, openBy, leaves, 0, bounty, root);
        emit TrapsSet(number, run, msg.sender, root, leaves, bounty, first, openBy);
        token.take(msg.sender, uint256(leaves) * bounty);
    }

    /// @inheritdoc ITraps
    function open(
        uint256 set_,
        Trap calldata trap,
        bytes32[] calldata proof,
        uint256 round,
        uint8 job,
        bytes calldata assignments
    ) external {
        if (trap.kind == TrapKind.Decoy) revert WrongKind(trap.kind);
        TrapSet storage stored = _known(set_);
        bytes32 leaf = _open(set_, stored, trap, proof);
        _requireTrap(stored, trap, round, job, assignments);
        uint256 bit = uint256(1) << job;
        if (trapped[round] & bit != 0) revert AlreadyOpened(round, job);
        trapped[round] |= bit;
        uint32[] memory finders = _finders(round, bit);
        emit TrapOpened(set_, round, trap.node, job, trap.kind, leaf, finders, stored.bounty);
        _reward(finders, stored.bounty);
    }

    /// @inheritdoc ITraps
    function openDecoy(uint256 set_, Trap calldata trap, bytes32[] calldata proof) external {
        if (trap.kind != TrapKind.Decoy) revert WrongKind(trap.kind);
        TrapSet storage stored = _known(set_);
        uint256 count = rounds.roundCount();
        if (count < trap.to) revert RoundsAhead(trap.to, count);
        bytes32 leaf = _open(set_, stored, trap, proof);
        emit DecoyOpened(set_, stored.setter, leaf, stored.bounty);
        token.safeTransfer(stored.setter, stored.bounty);
    }

    /// @inheritdoc ITraps
    function forfeit(uint256 set_) external {
        TrapSet storage stored = _known(set_);
        if (block.timestamp <= stored.openBy) revert IRoundsFacts.TooEarly(stored.openBy, block.timestamp);
        uint16 left = stored.leaves - stored.opened;
        if (left == 0) revert BadTraps("leaves");
        stored.opened = stored.leaves;
        uint256 amount = uint256(left) * stored.bounty;
        address treasury = rounds.admin().treasury();
        emit TrapsForfeited(set_, treasury, left, amount);
        token.safeTransfer(treasury, amount);
    }

    /// @inheritdoc ITraps
    function setOf(uint256 set_) external view returns (TrapSet memory) {
        return _known(set_);
    }

    /// @inheritdoc ITraps
    function leafOf(Trap calldata trap) public view returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(block.chainid, address(this), trap))));
    }

    function _known(uint256 set_) private view returns (TrapSet storage stored) {
        stored = _sets[set_];
        if (stored.leaves == 0) revert UnknownSet(set_);
    }

    /// Marks a leaf as opened. More leaves than were paid for cannot be opened, whatever the tree holds.
    function _open(uint256 set_, TrapSet storage stored, Trap calldata trap, bytes32[] calldata proof)
        private
        returns (bytes32 leaf)
    {
        if (block.timestamp > stored.openBy) revert IRoundsFacts.TooLate(stored.openBy, block.timestamp);
        leaf = leafOf(trap);
        bool spent = isOpened[set_][leaf] || stored.opened == stored.leaves;
        if (spent || !MerkleProof.verifyCalldata(proof, stored.root, leaf)) revert WrongLeaf(set_, leaf);
        isOpened[set_][leaf] = true;
        ++stored.opened;
    }

    /// Checks that the job is the trap's: of its run, rounds and node, fraud, and trained on by no checkpoint.
    function _requireTrap(
        TrapSet storage stored,
        Trap calldata trap,
        uint256 round,
        uint8 job,
        bytes calldata assignments
    ) private view {
        Round memory judged = rounds.roundOf(round);
        bool named = judged.run == stored.run && trap.from >= stored.first && trap.from <= round && round <= trap.to;
        // A struct in memory starts as zeros, as intended.
        // slither-disable-next-line uninitialized-local
        Assignments.Place memory at;
        bool listed = keccak256(assignments) == judged.assignmentsHash && at.endFor(assignments, trap.node, job) != 0;
        if (!named || !listed) revert NotTheTrap(round, job);
        bool fraud = ((judged.fraud & ~judged.accepted) >> job) & 1 == 1;
        if (!fraud || judged.state != State.Tallied || _pending(round, job)) revert NotFraud(round, job);
        if ((judged.consumed >> job) & 1 == 1) revert TrainedOn(round, job);
    }

    /// Pays the owners of the finders equal parts of a bounty, and the treasury what is left of it.
    function _reward(uint32[] memory finders, uint256 bounty) private {
        uint256 each = finders.length == 0 ? 0 : bounty / finders.length;
        uint256 left = finders.length == 0 ? bounty : bounty % finders.length;
        if (left != 0) token.safeTransfer(rounds.admin().treasury(), left);
        for (uint256 i; i < finders.length; ++i) {
            token.safeTransfer(registry.ownerOf(finders[i]), each);
        }
    }

    function _pending(uint256 round, uint8 job) private view returns (bool) {
        uint256 appealed = rounds.appealOf(round, job);
        if (appealed == 0) return false;
        State state = rounds.roundOf(appealed).state;
        return state != State.Settled && state != State.Void;
    }

    /// Validators of the committee that voted fraud on the job.
    function _finders(uint256 round, uint256 bit) private view returns (uint32[] memory finders) {
        Seat[] memory seats = rounds.seatsOf(round);
        finders = new uint32[](seats.length);
        uint256 count = 0;
        for (uint256 i; i < seats.length; ++i) {
            if (seats[i].fraud & ~seats[i].accept & bit != 0) finders[count++] = seats[i].node;
        }
        assembly ("memory-safe") {
            mstore(finders, count)
        }
    }
}
