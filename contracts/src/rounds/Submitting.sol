// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IMarket, Run, RunTerms} from "../interfaces/IMarket.sol";
import {IJudgement, Refusal, State} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Committees} from "../libraries/Committees.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {Parts} from "../libraries/Parts.sol";
import {Record, RoundStorage, RoundsBase} from "./RoundsBase.sol";

/// @title Submitting
/// @notice From the opening of a round to its close.
abstract contract Submitting is IJudgement, RoundsBase, EIP712 {
    using SafeCast for uint256;
    using Assignments for Assignments.Place;

    /// Maximum leaves in one batch, over all its parts.
    uint256 private constant MAX_LEAVES = 64;
    /// Maximum jobs in one round: one bit each of a word.
    uint256 private constant MAX_JOBS = 256;
    bytes32 private constant SUBMISSION =
        keccak256("Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)");

    /// A batch while it is being taken.
    /// @param at         the assignments entry read last
    /// @param batch      buffer for the parts taken, packed as `settle` takes them; large enough for all
    /// @param end        bytes of `batch` filled so far
    /// @param index      number of the batch in its round
    /// @param submitted  bitmap of the round's jobs submitted so far
    /// @param domain     EIP-712 domain separator
    /// @param keys       session key of each part's node
    /// @param first      why the first part was left out
    struct Intake {
        Assignments.Place at;
        bytes batch;
        uint256 end;
        uint8 index;
        uint256 submitted;
        bytes32 domain;
        address[] keys;
        Refusal first;
    }

    constructor() EIP712("Assize Rounds", "1") {}

    /// @inheritdoc IJudgement
    function open(uint256 run, uint64 step, uint32 policyVersion, bytes calldata assignments)
        external
        returns (uint256 round)
    {
        RunTerms memory terms = _openTerms(run, policyVersion);
        uint24 storageId;
        (round, storageId) = _nextRound();
        uint256 jobs = _list(run, terms.rulesHash, assignments);
        (uint256 eligible, uint256 least) = market.jurorSlots(run, terms.rulesHash);
        least = Math.max(least, uint256(terms.committee) + terms.appealSeats);
        if (Bitmaps.count(eligible) < least) revert TooFewValidators(Bitmaps.count(eligible), least);
        Record storage stored = _rounds[round];
        stored.storageId = storageId;
        stored.policyVersion = policyVersion;
        uint128 reserved = _store(stored, run, terms, jobs, eligible);
        _storageOf(stored).assignmentsHash = keccak256(assignments);
        market.reserve(run, round, reserved);
        _emitRoundOpened(round, stored, step, reserved, assignments);
    }

    /// @inheritdoc IJudgement
    function submit(uint256 round, bytes calldata assignments, bytes calldata parts) external {
        Record storage stored = _requireState(round, State.Open);
        if (block.timestamp > stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        // A struct in memory starts as zeros, as intended.
        // slither-disable-next-line uninitialized-local
        Intake memory intake;
        _prepare(intake, parts);
        intake.index = uint256(stored.batches).toUint8();
        intake.submitted = _submitted(stored);
        uint256 start = 0;
        for (uint256 place; start < parts.length; ++place) {
            // Only the end is needed here; `_take` reads node and leaves.
            // slither-disable-next-line unused-return
            (,, uint256 end) = Parts.measure(parts, start);
            _take(round, intake, assignments, parts[start:end], place);
            start = end;
        }
        if (intake.end == 0) revert NothingTaken(intake.first);
        _setSubmitted(stored, intake.submitted);
        stored.batches = uint16(intake.index) + 1;
        _storageOf(stored).digests[intake.index] = Parts.digest(intake.batch, intake.end);
        if (intake.submitted == _listed(stored)) _close(round, stored, intake.submitted);
    }

    /// @inheritdoc IJudgement
    // Registry, market and credits are fixed at deployment and call only each other and the token.
    // slither-disable-next-line reentrancy-no-eth
    function close(uint256 round, bytes calldata assignments) external {
        Record storage stored = _requireState(round, State.Open);
        if (block.timestamp <= stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        uint256 submitted = _submitted(stored);
        if (submitted != 0) return _close(round, stored, submitted);
        _end(round, stored, State.Void);
        _releaseStorage(stored);
        emit JobsFreed(round, stored.jobs);
        _freeAllBut(0, assignments);
    }

    function _close(uint256 round, Record storage stored, uint256 submitted) private {
        emit RoundClosed(round, submitted, _awaitDraw(stored));
    }

    function _listed(Record storage stored) private view returns (uint256) {
        return type(uint256).max >> (MAX_JOBS - stored.jobs);
    }

    /// Checks that every part is complete and the leaves are not too many, allocates the buffer, and reads all session
    /// keys at once.
    function _prepare(Intake memory intake, bytes calldata parts) private view {
        uint32[] memory nodes = new uint32[](parts.length / Parts.LEAST_SIGNED_BYTES);
        (uint256 count, uint256 leaves, uint256 start) = (0, 0, 0);
        while (start < parts.length) {
            (uint32 node, uint256 more, uint256 end) = Parts.measure(parts, start);
            if (end > parts.length) revert BatchCutOff(parts.length, end);
            nodes[count++] = node;
            leaves += more;
            start = end;
        }
        if (leaves > MAX_LEAVES) revert TooManyLeaves(leaves);
        assembly ("memory-safe") {
            mstore(nodes, count)
        }
        intake.batch = Parts.room(count, leaves);
        intake.keys = registry.keysOf(nodes);
        intake.domain = _domainSeparatorV4();
    }

    function _openTerms(uint256 run, uint32 policyVersion) private view returns (RunTerms memory terms) {
        if (admin.paused()) revert NewRoundsPaused();
        Run memory present = market.runOf(run);
        terms = present.terms;
        if (msg.sender != terms.coordinator) revert NotCoordinator(terms.coordinator, msg.sender);
        if (present.closed) revert IMarket.RunIsClosed(run);
        if (market.manifestRootOf(run, policyVersion) == 0) revert UnknownVersion(run, policyVersion);
    }

    /// Checks the assignments and counts their jobs as in flight. A node may be listed more than once, within its
    /// capacity.
    function _list(uint256 run, bytes32 rulesHash, bytes calldata assignments) private returns (uint256 jobs) {
        if (assignments.length % Assignments.LISTING_BYTES != 0) revert BadAssignments();
        market.requireJoined(run, rulesHash, assignments);
        jobs = registry.reserveJobs(assignments);
        if (jobs == 0 || jobs > MAX_JOBS) revert BadAssignments();
    }

    /// Stores the round. Its reserve covers the maximum pay of all jobs and the maximum fees of its verdict; the
    /// market's bounds on the terms make it fit in 128 bits.
    function _store(Record storage stored, uint256 run, RunTerms memory terms, uint256 jobs, uint256 eligible)
        private
        returns (uint128 reserved)
    {
        stored.state = State.Open;
        stored.committee = terms.committee;
        stored.jobs = jobs.toUint16();
        stored.deadline = _after(terms.workSeconds);
        stored.run = run.toUint48();
        RoundStorage storage live = _storageOf(stored);
        live.openedAt = block.timestamp.toUint32();
        live.drawSeconds = terms.drawSeconds;
        live.commitSeconds = terms.commitSeconds;
        live.revealSeconds = terms.revealSeconds;
        live.challengeSeconds = terms.challengeSeconds;
        // There is at least one validator, as the committee is not empty, and at most 256.
        live.lastSlot = uint256(registry.slotCount() - 1).toUint8();
        live.appealSeats = terms.appealSeats;
        live.appeals = 0;
        live.closeBlock = 0;
        uint256 work = jobs * terms.maxUnits * uint256(terms.pricePerUnit);
        reserved = (work + Committees.mostFees(terms.committee, terms.jurorFee)).toUint128();
        live.reserved = reserved;
        live.maxUnits = terms.maxUnits;
        live.openBlock = block.number.toUint40();
        live.settledBatches = 0;
        live.pricePerUnit = terms.pricePerUnit;
        live.jurorFee = terms.jurorFee;
        live.eligible = eligible;
    }

    function _emitRoundOpened(
        uint256 round,
        Record storage stored,
        uint64 step,
        uint128 reserved,
        bytes calldata assignments
    ) private {
        emit RoundOpened(
            round,
            stored.run,
            step,
            stored.policyVersion,
            stored.jobs,
            uint16(_storageOf(stored).lastSlot) + 1,
            reserved,
            stored.deadline,
            assignments
        );
    }

    /// Takes one part of a batch, or emits why it is left out.
    function _take(uint256 round, Intake memory intake, bytes calldata assignments, bytes calldata part, uint256 place)
        private
    {
        // `part` holds one part only, so where it ends is not needed.
        // slither-disable-next-line unused-return
        (uint32 node, bytes calldata leaves,) = Parts.read(part, 0);
        (uint256 jobs, Refusal reason) = _jobsOf(intake.at, assignments, node, leaves);
        if (reason == Refusal.None) {
            if (intake.submitted & jobs != 0) reason = Refusal.AlreadySubmitted;
            else if (!_emitIfSigned(round, intake, node, leaves, place)) reason = Refusal.BadSignature;
        }
        if (reason != Refusal.None) {
            if (place == 0) intake.first = reason;
            emit SubmissionRefused(round, node, place, reason);
            return;
        }
        intake.submitted |= jobs;
        intake.end = Parts.append(intake.batch, intake.end, part, leaves.length);
    }

    /// Bitmap of a part's jobs, or why the part is left out.
    function _jobsOf(Assignments.Place memory at, bytes calldata assignments, uint32 node, bytes calldata leaves)
        private
        pure
        returns (uint256 jobs, Refusal)
    {
        if (leaves.length == 0) return (0, Refusal.Malformed);
        // End of the assignments entry that holds the previous leaf; 0 before the first.
        uint256 end = 0;
        for (uint256 start; start < leaves.length; start += Leaves.LEAF_BYTES) {
            uint256 job = Leaves.jobAt(leaves, start);
            // Ascending: no bit at or above this job is set.
            if (jobs >> job != 0) return (0, Refusal.Malformed);
            if (job >= end) {
                end = at.endFor(assignments, node, job);
                if (end == 0) return (0, Refusal.NotAssigned);
            }
            jobs |= uint256(1) << job;
        }
        return (jobs, Refusal.None);
    }

    /// Emits `Submitted` and returns true if the node's key signed the part. Signature and event cover the same bytes,
    /// so they are laid out in memory once; `abi.encode` and `emit` would copy them four times for every part.
    function _emitIfSigned(uint256 round, Intake memory intake, uint32 node, bytes calldata leaves, uint256 place)
        private
        returns (bool)
    {
        (bytes32 beacon, uint256 data, uint256 length) = _layOut(leaves);
        address key = intake.keys[place];
        if (key == address(0) || _signer(round, intake.domain, node, beacon, data) != key) return false;
        (bytes32 topic, uint256 index) = (Submitted.selector, intake.index);
        assembly ("memory-safe") {
            mstore(data, index)
            mstore(add(data, 32), beacon)
            log3(data, length, topic, round, node)
        }
        return true;
    }

    /// Recovers the signer of a part laid out at `data`; zero if the signature is invalid.
    function _signer(uint256 round, bytes32 domain, uint32 node, bytes32 beacon, uint256 data)
        private
        pure
        returns (address signer)
    {
        bytes memory leaves;
        bytes memory uri;
        bytes memory signature;
        assembly ("memory-safe") {
            leaves := add(data, 160)
            uri := add(data, mload(add(data, 96)))
            signature := add(data, mload(add(data, 128)))
        }
        bytes32 content = keccak256(abi.encode(SUBMISSION, round, node, beacon, keccak256(leaves), keccak256(uri)));
        // A failed recovery returns the zero address; the reason is not needed.
        // slither-disable-next-line unused-return
        (signer,,) = ECDSA.tryRecover(MessageHashUtils.toTypedDataHash(domain, content), signature);
    }

    /// Lays out the data of a `Submitted` event in new memory, except its first two words.
    function _layOut(bytes calldata leaves) private pure returns (bytes32 beacon, uint256 data, uint256 length) {
        bytes calldata uri;
        bytes calldata signature;
        (beacon, uri, signature) = Parts.tail(leaves);
        assembly ("memory-safe") {
            // Writes length, bytes and zero padding to a whole word; returns the position of the next value.
            function put(at, offset, size) -> next {
                mstore(at, size)
                at := add(at, 32)
                calldatacopy(at, offset, size)
                mstore(add(at, size), 0)
                next := add(at, and(add(size, 31), not(31)))
            }
            data := mload(0x40)
            mstore(add(data, 64), 160)
            let at := put(add(data, 160), leaves.offset, leaves.length)
            mstore(add(data, 96), sub(at, data))
            at := put(at, uri.offset, uri.length)
            mstore(add(data, 128), sub(at, data))
            at := put(at, signature.offset, signature.length)
            length := sub(at, data)
            // The padding of the last value may write one word past its end: allocate that word as well.
            mstore(0x40, add(at, 32))
        }
    }
}
