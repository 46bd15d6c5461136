// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IMarket, Run, RunTerms} from "../interfaces/IMarket.sol";
import {IRounds, Refusal, Round, SettledLeaves, State, Submission} from "../interfaces/IRounds.sol";
import {Assignments} from "../libraries/Assignments.sol";
import {Bitmaps} from "../libraries/Bitmaps.sol";
import {Leaves} from "../libraries/Leaves.sol";
import {RoundsBase} from "./RoundsBase.sol";

/// @title Submitting: from opening a round to closing it
abstract contract Submitting is IRounds, RoundsBase, EIP712 {
    using SafeCast for uint256;
    using Assignments for Assignments.Place;

    /// Most leaves of one batch.
    uint256 private constant MAX_LEAVES = 64;
    uint256 private constant MAX_JOBS = 256;
    bytes32 private constant SUBMISSION =
        keccak256("Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)");

    /// A batch while it is taken.
    /// @param at         the listing looked at last
    /// @param batch      what was taken so far, `taken` of it
    /// @param submitted  bitmap of the round's jobs submitted so far
    /// @param leaves     leaves seen
    /// @param first      why the first part was left out
    struct Intake {
        Assignments.Place at;
        SettledLeaves[] batch;
        uint8 index;
        uint256 submitted;
        uint256 leaves;
        uint256 taken;
        Refusal first;
    }

    constructor() EIP712("Assize Rounds", "1") {}

    /// @inheritdoc IRounds
    function open(uint256 run, uint64 step, uint32 policyVersion, bytes calldata assignments)
        external
        returns (uint256 round)
    {
        RunTerms memory terms = _openTerms(run, policyVersion);
        round = ++roundCount;
        uint256 jobs = _list(run, terms.rulesHash, assignments);
        uint256 eligible = registry.eligible();
        uint256 seats = uint256(terms.committee) + terms.appealSeats;
        if (Bitmaps.count(eligible) < seats) revert TooFewValidators(Bitmaps.count(eligible), seats);
        _store(round, run, terms, jobs, eligible);
        Round storage stored = _rounds[round];
        stored.policyVersion = policyVersion;
        stored.assignmentsHash = keccak256(assignments);
        market.reserve(run, round, stored.reserved);
        _announce(round, stored, step, assignments);
    }

    /// @inheritdoc IRounds
    function submit(uint256 round, bytes calldata assignments, Submission[] calldata submissions) external {
        Round storage stored = _in(round, State.Open);
        if (block.timestamp > stored.deadline) revert TooLate(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        // A struct in memory starts as zeros, which is what is meant.
        // slither-disable-next-line uninitialized-local
        Intake memory intake;
        intake.batch = new SettledLeaves[](submissions.length);
        intake.index = uint256(stored.batches).toUint8();
        intake.submitted = stored.submitted;
        for (uint256 i; i < submissions.length; ++i) {
            _take(round, intake, assignments, submissions[i], i);
        }
        if (intake.leaves > MAX_LEAVES) revert TooManyLeaves(intake.leaves);
        if (intake.taken == 0) revert NothingTaken(intake.first);
        stored.submitted = intake.submitted;
        stored.batches = uint16(intake.index) + 1;
        batchDigest[round][intake.index] = keccak256(abi.encode(_taken(intake)));
    }

    /// @inheritdoc IRounds
    function close(uint256 round, bytes calldata assignments) external {
        Round storage stored = _in(round, State.Open);
        uint256 submitted = stored.submitted;
        bool complete = submitted == type(uint256).max >> (MAX_JOBS - stored.jobs);
        if (!complete && block.timestamp <= stored.deadline) revert TooEarly(stored.deadline, block.timestamp);
        _requireAssignments(stored, assignments);
        if (submitted == 0) {
            stored.assignmentsHash = 0;
            _end(round, stored, State.Void);
            emit JobsFreed(round, stored.jobs);
            _freeAllBut(0, assignments);
            return;
        }
        stored.state = State.Closed;
        stored.deadline = _after(stored.drawSeconds);
        stored.closeBlock = block.number.toUint40();
        emit RoundClosed(round, submitted, stored.deadline);
    }

    function _openTerms(uint256 run, uint32 policyVersion) private view returns (RunTerms memory terms) {
        if (admin.paused()) revert NewRoundsPaused();
        Run memory present = market.runOf(run);
        terms = present.terms;
        if (msg.sender != terms.coordinator) revert NotCoordinator(terms.coordinator, msg.sender);
        if (present.closed) revert IMarket.RunIsClosed(run);
        if (market.manifestRootOf(run, policyVersion) == 0) revert UnknownVersion(run, policyVersion);
    }

    /// Counts every listed node's jobs in flight. A node may be listed more than once; its capacity bounds the sum.
    function _list(uint256 run, bytes32 rulesHash, bytes calldata assignments) private returns (uint256 jobs) {
        if (assignments.length % Assignments.LISTING_BYTES != 0) revert BadAssignments();
        market.requireJoined(run, rulesHash, assignments);
        jobs = registry.reserveJobs(assignments);
        if (jobs == 0 || jobs > MAX_JOBS) revert BadAssignments();
    }

    /// The market bounded the terms so that the reserve fits: both committees' fees and the most that the jobs can cost.
    function _store(uint256 round, uint256 run, RunTerms memory terms, uint256 jobs, uint256 eligible) private {
        Round storage stored = _rounds[round];
        stored.state = State.Open;
        stored.committee = terms.committee;
        stored.appealSeats = terms.appealSeats;
        stored.jobs = jobs.toUint16();
        stored.slotCount = registry.slotCount();
        stored.openedAt = _after(0);
        stored.deadline = _after(terms.workSeconds);
        stored.run = run.toUint48();
        stored.maxUnits = terms.maxUnits;
        stored.openBlock = block.number.toUint40();
        stored.pricePerUnit = terms.pricePerUnit;
        stored.jurorFee = terms.jurorFee;
        uint256 work = jobs * terms.maxUnits * uint256(terms.pricePerUnit);
        stored.reserved = (work + 2 * uint256(terms.committee) * terms.jurorFee).toUint128();
        stored.drawSeconds = terms.drawSeconds;
        stored.commitSeconds = terms.commitSeconds;
        stored.revealSeconds = terms.revealSeconds;
        stored.challengeSeconds = terms.challengeSeconds;
        stored.eligible = eligible;
    }

    function _announce(uint256 round, Round storage stored, uint64 step, bytes calldata assignments) private {
        emit RoundOpened(
            round,
            stored.run,
            step,
            stored.policyVersion,
            stored.jobs,
            stored.slotCount,
            stored.reserved,
            stored.deadline,
            assignments
        );
    }

    /// Adds one part of a batch to what is taken, or says why it is left out.
    function _take(
        uint256 round,
        Intake memory intake,
        bytes calldata assignments,
        Submission calldata item,
        uint256 place
    ) private {
        intake.leaves += Leaves.count(item.leaves);
        (uint256 jobs, Refusal reason) = _jobsOf(intake, assignments, item.node, item.leaves);
        if (reason == Refusal.None && !_signed(round, item)) reason = Refusal.BadSignature;
        if (reason != Refusal.None) {
            if (place == 0) intake.first = reason;
            emit SubmissionRefused(round, item.node, place, reason);
            return;
        }
        intake.submitted |= jobs;
        intake.batch[intake.taken++] = SettledLeaves(item.node, item.leaves);
        emit Submitted(round, item.node, intake.index, item.beacon, item.leaves, item.uri, item.signature);
    }

    /// What was taken: the list is cut to it, so that nothing refused is in the digest.
    function _taken(Intake memory intake) private pure returns (SettledLeaves[] memory batch) {
        batch = intake.batch;
        uint256 taken = intake.taken;
        assembly ("memory-safe") {
            mstore(batch, taken)
        }
    }

    /// The bitmap of one submission's jobs, or why it is left out.
    function _jobsOf(Intake memory intake, bytes calldata assignments, uint32 node, bytes calldata leaves)
        private
        pure
        returns (uint256 jobs, Refusal)
    {
        Assignments.Place memory at = intake.at;
        uint256 count = Leaves.count(leaves);
        if (count == 0) return (0, Refusal.Malformed);
        for (uint256 i; i < count; ++i) {
            // Units are read when they are paid.
            // slither-disable-next-line unused-return
            (uint8 job,) = Leaves.read(leaves, i);
            // Ascending: nothing at or above this job was seen.
            if (jobs >> job != 0) return (0, Refusal.Malformed);
            if (job < at.first || job >= at.end) {
                if (!at.seek(assignments, job)) return (0, Refusal.NotAssigned);
            }
            if (at.node != node) return (0, Refusal.NotAssigned);
            jobs |= uint256(1) << job;
        }
        return (jobs, intake.submitted & jobs == 0 ? Refusal.None : Refusal.AlreadySubmitted);
    }

    function _signed(uint256 round, Submission calldata item) private view returns (bool) {
        bytes32 content = keccak256(
            abi.encode(SUBMISSION, round, item.node, item.beacon, keccak256(item.leaves), keccak256(bytes(item.uri)))
        );
        // A failed recovery answers no address; why it failed changes nothing.
        // slither-disable-next-line unused-return
        (address recovered,,) = ECDSA.tryRecoverCalldata(_hashTypedDataV4(content), item.signature);
        return recovered != address(0) && recovered == registry.keyOf(item.node);
    }
}
