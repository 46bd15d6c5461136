// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IAdmin} from "./IAdmin.sol";
import {IMarket} from "./IMarket.sol";
import {IRegistry} from "./IRegistry.sol";

/// Where a round stands.
///
///   None -> Open -> Closed -> Voting -> Tallied -> Settled
///             \________\_________\________________> Void
enum State {
    None,
    Open,
    Closed,
    Voting,
    Tallied,
    Settled,
    Void
}

/// Why a part of a batch was left out.
enum Refusal {
    None,
    /// No leaves, or not ascending by job.
    Malformed,
    /// A job of another node, or of none.
    NotAssigned,
    AlreadySubmitted,
    /// Not by the node key over these very fields.
    BadSignature
}

/// What a committee found about one job. Void is what is neither: no credit, no slash.
enum Verdict {
    Void,
    Accepted,
    Fraud
}

/// Protocol-wide penalties, fixed at deployment: a run cannot change what fraud costs.
/// @param fraudSlash       wei taken from the worker's bond for each fraudulent job, at most what is left
/// @param absencePenalty   wei taken from a juror that did not commit or did not reveal
/// @param overturnPenalty  wei taken from each juror of a majority that an appeal overturned
/// @param appealBond       credits an appellant loses, beside the fees, when the verdict stands
/// @param appealBounty     most credits a winning appellant is given beside what it spent
struct RoundsTerms {
    uint128 fraudSlash;
    uint128 absencePenalty;
    uint128 overturnPenalty;
    uint128 appealBond;
    uint128 appealBounty;
}

/// An appeal: what is disputed, and by whom. Its trial is a round of its own under its own number: no assignments and no
/// submissions, the one job tried as bit `job`, drawn, voted on and tallied like any other.
/// @param round      the round appealed against
/// @param job        the job
/// @param against    the verdict appealed against
/// @param node       the worker
/// @param units      what the worker claimed
/// @param appellant  who appealed
/// @param deposit    credits the appellant put up
struct Appeal {
    uint48 round;
    uint8 job;
    Verdict against;
    uint32 node;
    uint64 units;
    address appellant;
    uint128 deposit;
}

/// A round. What only its going on needs is kept until it ends, and zero from there on (events tell it for good): slotCount,
/// appeals, openedAt, maxUnits, openBlock, closeBlock, appealSeats, pricePerUnit, jurorFee, the windows, assignmentsHash, eligible
/// and appealed. A round that ended void after its close has ended when its jobs are freed.
/// Bit j of a bitmap of jobs stands for job j; bit i of a bitmap of seats for seat i of the present committee.
/// @param state            where the round stands
/// @param attempt          0, or 1 after a redraw
/// @param committee        seats
/// @param revealing        voting only: committing is over
/// @param jobs             1 to 256; 0 for an appeal
/// @param slotCount        validator slots at opening
/// @param batches          batches submitted
/// @param settledBatches   batches settled
/// @param appeals          appeals not decided yet
/// @param appealSeats      seats of an appeal's committee; 0 where the run offers none
/// @param committed        seats that committed
/// @param revealed         seats that revealed
/// @param abstained        seats that revealed the abstention code: no fee, no penalty, outside the quorum
/// @param policyVersion    checkpoint version the rollouts must come from
/// @param openedAt         timestamp in seconds; an appeal has that of the round appealed against
/// @param deadline         end of the present phase (work, draw, commit, reveal or challenge), a timestamp in seconds
/// @param run              the run
/// @param maxUnits         most units one job is paid for
/// @param openBlock        its hash is the beacon
/// @param closeBlock       the draw's seed comes from this block or a later multiple of the window
/// @param pricePerUnit     credits for one unit
/// @param jurorFee         most credits one juror earns
/// @param reserved         credits reserved and neither paid nor released
/// @param drawSeconds      the run's windows as they stood at opening
/// @param assignmentsHash  keccak256 of the packed assignments; zero once a void round's jobs are freed
/// @param eligible         bitmap of the validator slots that may be drawn
/// @param submitted        jobs submitted; for an appeal, the job tried
/// @param accepted         jobs the committee accepted, as appeals have left it
/// @param fraud            jobs the committee found fraudulent, as appeals have left it
/// @param appealed         jobs ever appealed; each is settled by its appeal
/// @param consumed         jobs that went into a checkpoint, overturned since or not
struct Round {
    State state;
    uint8 attempt;
    uint8 committee;
    bool revealing;
    uint16 jobs;
    uint16 slotCount;
    uint16 batches;
    uint16 settledBatches;
    uint16 committed;
    uint16 revealed;
    uint16 abstained;
    uint32 policyVersion;
    uint40 openedAt;
    uint40 deadline;
    uint48 run;
    uint64 maxUnits;
    uint40 openBlock;
    uint40 closeBlock;
    uint8 appealSeats;
    uint16 appeals;
    uint128 pricePerUnit;
    uint128 jurorFee;
    uint128 reserved;
    uint32 drawSeconds;
    uint32 commitSeconds;
    uint32 revealSeconds;
    uint32 challengeSeconds;
    bytes32 assignmentsHash;
    uint256 eligible;
    uint256 submitted;
    uint256 accepted;
    uint256 fraud;
    uint256 appealed;
    uint256 consumed;
}

/// One seat of a committee.
/// @param node        the validator
/// @param commitment  zero until committed, and again once revealed
/// @param revealed    true once revealed
/// @param abstained   revealed the abstention code: no fee, no penalty, outside the quorum
/// @param accept      revealed bitmap, within what was submitted
/// @param fraud       revealed bitmap, within what was submitted
struct Seat {
    uint32 node;
    bool revealed;
    bool abstained;
    bytes32 commitment;
    uint256 accept;
    uint256 fraud;
}

/// @title RoundsFacts: what a round tells, and what both halves of its code share
interface IRoundsFacts {
    event RoundOpened(
        uint256 indexed round,
        uint256 indexed run,
        uint64 step,
        uint32 policyVersion,
        uint16 jobs,
        uint16 slotCount,
        uint128 reserved,
        uint40 deadline,
        bytes assignments
    );
    event Submitted(
        uint256 indexed round,
        uint32 indexed node,
        uint8 batch,
        bytes32 beacon,
        bytes leaves,
        string uri,
        bytes signature
    );
    /// The part of a batch at `index` was left out; the rest of the batch was taken.
    event SubmissionRefused(uint256 indexed round, uint32 indexed node, uint256 index, Refusal reason);
    event RoundClosed(uint256 indexed round, uint256 submitted, uint40 deadline);
    event CommitteeDrawn(
        uint256 indexed round, uint8 attempt, uint64 seedBlock, bytes32 seed, uint32[] jurors, uint40 deadline
    );
    event VoteCommitted(uint256 indexed round, uint32 indexed juror, uint8 attempt, bytes32 commitment);
    /// `deadline` is the end of revealing; emitted when the last seat commits or the first reveal follows the commit deadline.
    event RevealStarted(uint256 indexed round, uint8 attempt, uint40 deadline);
    event VoteRevealed(
        uint256 indexed round,
        uint32 indexed juror,
        uint8 attempt,
        uint256 accept,
        uint256 fraud,
        bytes reasons,
        bytes32 evidenceRoot,
        bytes32 salt
    );
    event RoundTallied(uint256 indexed round, uint8 attempt, uint256 accepted, uint256 fraud, uint40 deadline);
    /// No quorum: every seat is drawn again, once.
    event CommitteeRedrawn(uint256 indexed round, uint8 attempt, uint40 deadline);
    event JobsConsumed(uint256 indexed round, uint256 indexed run, uint256 jobs);
    /// These jobs went into a checkpoint and are no longer accepted.
    event JobsTainted(uint256 indexed round, uint256 indexed run, uint256 jobs);
    /// The trial of `job` has begun under the number `appeal`; it is drawn until `deadline`.
    event AppealOpened(
        uint256 indexed appeal,
        uint256 indexed round,
        address indexed appellant,
        uint8 job,
        Verdict against,
        uint32 node,
        uint64 units,
        uint256 deposit,
        uint40 deadline
    );
    /// `decided` is false where no committee came to a verdict: the job is void. `fees` were paid to jurors out of the deposit;
    /// `covered` of them came back from the reserve of `round`, `awarded` is what the overturned jurors' penalties gave the
    /// appellant, `forfeited` what it lost of its deposit to the treasury.
    event AppealDecided(
        uint256 indexed appeal,
        uint256 indexed round,
        uint8 job,
        Verdict verdict,
        bool decided,
        uint256 fees,
        uint256 covered,
        uint256 awarded,
        uint256 forfeited
    );
    /// What an appealed job came to in the end.
    event AppealedJobSettled(
        uint256 indexed round, uint32 indexed node, uint8 job, Verdict verdict, uint256 units, uint256 paid
    );
    /// What one submission came to: bitmaps of its accepted, fraudulent and void jobs, units verified, credits paid.
    /// Jobs under appeal, or that were, are in none of the bitmaps; a submission of which that leaves nothing has no event.
    event SubmissionSettled(
        uint256 indexed round,
        uint32 indexed node,
        uint8 batch,
        uint256 accepted,
        uint256 fraud,
        uint256 void_,
        uint256 units,
        uint256 paid
    );
    /// `bits` of the juror's vote agree with the final verdict, of those submitted.
    event JurorSettled(uint256 indexed round, uint32 indexed juror, uint16 bits, uint256 paid);
    event RoundSettled(uint256 indexed round, uint256 released);
    event RoundVoided(uint256 indexed round, uint256 released);
    /// The jobs of a void round no longer count as in flight.
    event JobsFreed(uint256 indexed round, uint16 jobs);

    error WrongState(uint256 round, State state);
    error NotCoordinator(address coordinator, address caller);
    error NotMarket(address caller);
    error BadAssignments();
    error WrongAssignments(bytes32 given, bytes32 stored);
    error NotJoined(uint256 run, uint32 node);
    error UnknownVersion(uint256 run, uint32 version);
    error TooFewValidators(uint256 eligible, uint256 need);
    error TooLate(uint256 deadline, uint256 now_);
    error TooEarly(uint256 deadline, uint256 now_);
    error TooManyLeaves(uint256 given);
    /// The last part of a batch would need more bytes than there are.
    error BatchCutOff(uint256 length, uint256 need);
    error SeedNotReady(uint256 seedBlock);
    error NotSeated(uint256 round, uint32 juror);
    error AlreadyCommitted(uint32 juror);
    error AlreadyRevealed(uint32 juror);
    error NotCommitted(uint32 juror);
    error WrongReveal(bytes32 given, bytes32 committed);
    error OverlappingVerdict(uint256 both);
    error WrongReasons(uint256 given, uint256 need);
    error WrongBatch(uint8 batch, bytes32 given, bytes32 stored);
    error AlreadySettled(uint8 batch);
    error NotAccepted(uint256 round, uint256 jobs);
    error AlreadyConsumed(uint256 round, uint256 jobs);
    error WrongRun(uint256 round, uint256 run);
    error AppealsNotOffered(uint256 round);
    error AlreadyAppealed(uint256 round, uint8 job);
    error NotSubmitted(uint256 round, uint8 job);
    /// No part of the batch could be taken; why its first was left out.
    error NothingTaken(Refusal reason);
    error NewRoundsPaused();
    error NotFinished(uint256 round, uint256 batches, uint256 appeals);
    /// The registry or the market names other rounds than this contract.
    error WrongDeployment();

    function roundCount() external view returns (uint256);
    /// The number under which a job's appeal is tried; 0 where it was not appealed.
    function appealOf(uint256 round, uint8 job) external view returns (uint256 appealed);
    /// keccak256 of the batch, packed as `settle` takes it; zero once settled.
    function batchDigest(uint256 round, uint8 batch) external view returns (bytes32);
    function admin() external view returns (IAdmin);
    function registry() external view returns (IRegistry);
    function market() external view returns (IMarket);
}

/// @title Settlement: what follows from a verdict
/// @notice The second half of the code of `Rounds`; call it there.
interface ISettlement is IRoundsFacts {
    /// Tries one job again before a larger committee. Refused past the challenge window, and where the round was tallied so late
    /// that the trial and its redraw could outlast MAX_ROUND. The batch that holds it is resupplied as for `settle`. Takes the deposit
    /// from the caller's free credits.
    function appeal(uint256 round, uint8 job, uint8 batch, bytes calldata parts) external returns (uint256 appealed);
    /// Pays and slashes for one batch, resupplied as it was taken, once the challenge window is over. Leaves out jobs that were
    /// appealed. The last batch ends the round as `finish` does where no appeal is pending.
    /// @param parts  the batch as it was taken, packed
    function settle(uint256 round, uint8 batch, bytes calldata assignments, bytes calldata parts) external;
    /// Ends a round of which every batch is settled and every appeal decided: jurors are paid, missing jobs freed, what is left of
    /// the reserve released. Anyone may.
    function finish(uint256 round, bytes calldata assignments) external;
    /// Frees the nodes of a round that ended void after its close. Anyone may, once. (A round void at its close frees them there.)
    function free(uint256 round, bytes calldata assignments) external;
    /// Market only: marks accepted jobs as trained on.
    function consume(uint256 run, uint256 round, uint256 jobs) external;
}

/// @title Rounds: assignment, submission, verdict, settlement
/// @notice The life of a round: open, submit, close, draw, commit, reveal, tally, (appeal), settle. Calldata in, digest stored:
/// what an auditor needs travels in calldata and events; storage holds what later calls check. Anyone may move a round on
/// once its deadline has passed, and `draw` and `settle` as soon as there is nothing to wait for; the last submission closes, and
/// the last reveal tallies.
/// A job not submitted in time is missing: neither accepted nor fraudulent, and unpaid.
///
/// Appeals: within the challenge window anyone may dispute the verdict on one submitted job, once, by a deposit of
/// appealBond + (a + (a - 1) / 2) * jurorFee credits, a = appealSeats: the bond, and the most that the fees can come to. The
/// appeal is tried as a round of its own (`appealOf` gives its number) by a committee without the first one's members; `draw`,
/// `commit`, `reveal` and `tally` take that number. Its tally is final:
///  - the verdict stands: the appellant loses the bond to the treasury, and the fees;
///  - it is overturned: the deposit comes back; every juror of the majority that is overturned pays overturnPenalty from its
///    bond; from that the appellant is given the fees and a bounty of less than half of what those jurors paid;
///  - nothing is decided (no quorum in either attempt, or no draw in time): the job is void, and the deposit comes back.
/// Fees that no juror pays for come from the job's own share of the escrow (maxUnits * pricePerUnit less what it is paid).
/// The job is settled there and then; the other jobs of its round do not wait for it. A job that is no longer accepted after it
/// went into a checkpoint is reported by `JobsTainted`: that checkpoint and all that follow it stand on it.
///
/// @dev Trust: block producers can bias a seed by withholding a block; a majority of a committee decides, and a majority of the
/// appeal's committee decides over it. MAX_ROUND (`Market.terms().maxRoundSeconds`) after it opened, anyone can end a round that
/// has no verdict; every phase also has a way on of its own when its deadline has passed.
///
/// Packed batches, one part for each node, big-endian. As submitted: `uint32 node, uint8 count, count leaves, bytes32 beacon,
/// uint16 length, uri of that length, 65 bytes signature`. As taken, without the parts left out, which is what `settle` and
/// `appeal` are resupplied with and what the digest is of: `uint32 node, uint8 count, count leaves`.
/// A leaf is 41 bytes: `uint8 job, uint64 units, bytes32 artifactRoot`; a part has them ascending by job. The beacon is the hash of
/// the opening block as the worker saw it, the uri says where the artifacts can be fetched, and the signature is by the node key,
/// EIP-712 `Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)` in the domain ("Assize Rounds", "1",
/// chain id, this contract).
/// Packed assignments: for each node 5 bytes, `uint32 node, uint8 count - 1` (big-endian). Jobs are numbered in that order.
/// Commitment: keccak256(abi.encode(chainId, address(this), round, attempt, juror, accept, fraud, keccak256(reasons),
/// evidenceRoot, salt)) with juror the validator's node id (uint32), attempt uint8.
/// Reasons: one byte for each job the juror does not accept among those submitted, ascending by job.
/// Abstention: accept = fraud = 0 and reasons the single byte 0xff.
/// Draw: seed = hash of the seed block; slot of try i = uint256(keccak256(abi.encode(seed, attempt, i))) % slotCount for
/// i < 4 * slotCount, and i % slotCount from there on; attempt is a uint8, i a uint256. Ineligible and repeated slots are passed
/// over. Seed block = closeBlock + k * W, the newest such below the present block, W = 8191 where the chain keeps block hashes
/// in its history contract (EIP-2935), else 256.
interface IRounds is ISettlement {
    /// By the run's coordinator: lists nodes for the next jobs and reserves their pay and the jurors' fees. Needs as many active
    /// validators as the committee and an appeal's committee have seats together.
    function open(uint256 run, uint64 step, uint32 policyVersion, bytes calldata assignments)
        external
        returns (uint256 round);
    /// Takes a batch of at most 64 leaves in all, one signed part for each node. A part that is malformed, not its node's to
    /// submit, submitted already or not signed by the node key is left out; refused where that leaves nothing. Sent by anyone.
    /// With the last of the round's jobs it closes the round: the draw's seed comes from the very block of this call or a later
    /// one, whose hash nobody knows yet.
    function submit(uint256 round, bytes calldata assignments, bytes calldata parts) external;
    /// Past the deadline, of a round to which something is missing (the last submission closes one that is whole). With nothing
    /// submitted the round is void at once.
    function close(uint256 round, bytes calldata assignments) external;
    /// Seats the committee from the hash of the seed block. Past the deadline it ends the round as void instead.
    function draw(uint256 round) external;
    /// By a seated validator's node key.
    function commit(uint256 round, bytes32 commitment) external;
    /// By a seated validator's node key, once all have committed or past the commit deadline. The last reveal that can come tallies
    /// the round, as `tally` does. It does not tally an appeal: what follows from that moves tokens, and no reveal shall fail where
    /// a token does.
    function reveal(
        uint256 round,
        uint256 accept,
        uint256 fraud,
        bytes calldata reasons,
        bytes32 evidenceRoot,
        bytes32 salt
    ) external;
    /// Past the reveal deadline, or of an appeal as soon as all who committed have revealed. Absent seats pay the penalty. Without
    /// a quorum its revealers are paid in full and every seat is drawn again, once; then the round is void.
    function tally(uint256 round) external;
    /// Ends a round that has no verdict MAX_ROUND after it opened, as void; of an appeal, as undecided. Anyone may.
    function expire(uint256 round) external;
    function roundOf(uint256 round) external view returns (Round memory);
    /// Zeros where `appealed` is not the number of an appeal.
    function appealAt(uint256 appealed) external view returns (Appeal memory);
    /// While it is voted on, and until the round ends; none otherwise.
    function seatsOf(uint256 round) external view returns (Seat[] memory);
    function terms() external view returns (RoundsTerms memory);
}
