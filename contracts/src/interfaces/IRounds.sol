// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IAdmin} from "./IAdmin.sol";
import {IMarket} from "./IMarket.sol";
import {IRegistry} from "./IRegistry.sol";

/// State of a round. An appeal starts at Closed.
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
    /// No leaves, or leaves not ascending by job.
    Malformed,
    /// A job is not assigned to the part's node.
    NotAssigned,
    /// A job was submitted before.
    AlreadySubmitted,
    /// The node key did not sign these fields.
    BadSignature
}

/// A committee's finding on one job. In votes and verdicts two bits stand for it: accepted and fraud. Only an accepted
/// job is paid and may be consumed; only a fraudulent one is slashed.
enum Verdict {
    /// Neither bit: judged, and neither accepted nor fraud; or no majority for any of the others.
    Void,
    /// The accepted bit alone.
    Accepted,
    /// The fraud bit alone.
    Fraud,
    /// Both bits: its bytes could not be read, so nothing can be said of them.
    Unavailable
}

/// Protocol-wide penalties, fixed at deployment; the same for all runs.
/// @param fraudSlash       wei taken from a worker's bond for each fraudulent job; at most the registry's bondPerJob
/// @param absencePenalty   wei taken from the bond of a juror that committed and did not reveal, or that did neither in
///                         a committee that reached its quorum
/// @param overturnPenalty  wei taken from the bond of each juror that accepted a job which an appeal condemns, or the
///                         other way round
/// @param appealBond       credits an appellant loses, besides the fees, if the verdict stands
/// @param appealBounty     maximum credits a successful appellant is awarded besides its fees; at most fraudSlash, so that
///                         nobody gains by condemning a fault that it planted itself
struct RoundsTerms {
    uint128 fraudSlash;
    uint128 absencePenalty;
    uint128 overturnPenalty;
    uint128 appealBond;
    uint128 appealBounty;
}

/// An appeal against the verdict on one job. It is also a round under its own number, without assignments and
/// submissions, whose only job is bit `job`.
/// @param round      number of the round appealed against
/// @param job        number of the job
/// @param against    verdict appealed against
/// @param node       worker that submitted the job
/// @param units      units it claimed
/// @param appellant  account that appealed
/// @param deposit    credits it deposited
struct Appeal {
    uint48 round;
    uint8 job;
    Verdict against;
    uint32 node;
    uint64 units;
    address appellant;
    uint128 deposit;
}

/// A round or an appeal. Bit j of a bitmap of jobs stands for job j; bit i of a bitmap of seats for seat i of the
/// present committee.
/// @dev Fields marked * are needed only while the round is live and read zero once it has ended; events are the
/// permanent record. A void round keeps them until its jobs are freed, by `close` or `free`. Of a settled round,
/// settledBatches equals batches.
/// @param state             state
/// @param attempt           number of redraws, 0 to 3
/// @param committee         number of seats
/// @param revealing         in state Voting: committing is over
/// @param jobs              number of jobs listed, 1 to 256; 0 for an appeal
/// @param slotCount         * validator slots at opening
/// @param batches           number of batches taken
/// @param settledBatches    * number of batches settled
/// @param committed         bitmap of the seats that committed
/// @param revealed          bitmap of the seats that revealed
/// @param abstained         bitmap of the seats that abstained
/// @param policyVersion     checkpoint version the rollouts must come from
/// @param openedAt          * timestamp in seconds; for an appeal, that of the round appealed against
/// @param deadline          end of the present phase (work, draw, commit, reveal or challenge), a timestamp in seconds
/// @param run               id of the run
/// @param maxUnits          * maximum units one job is paid for
/// @param openBlock         * number of the opening block, whose hash is the beacon; 0 for an appeal
/// @param closeBlock        * number of the block from which the draw's seed block follows
/// @param appealSeats       * seats of an appeal's committee; 0 if the run offers no appeals
/// @param appeals           * number of appeals not decided yet
/// @param pricePerUnit      * credits for one unit
/// @param jurorFee          * maximum credits one juror earns
/// @param reserved          * credits reserved and neither paid nor released
/// @param drawSeconds       * the run's window at opening
/// @param commitSeconds     * the run's window at opening
/// @param revealSeconds     * the run's window at opening
/// @param challengeSeconds  * the run's window at opening
/// @param assignmentsHash   * keccak256 of the packed assignments
/// @param eligible          * bitmap of the validator slots that may be drawn: those in service at the opening, without
///                          those that a redraw excluded
/// @param submitted         bitmap of the jobs submitted; for an appeal, of the job appealed
/// @param accepted          bitmap of the jobs accepted or unavailable, as appeals have left it
/// @param fraud             bitmap of the jobs fraudulent or unavailable, as appeals have left it
/// @param appealed          * bitmap of the jobs ever appealed; each is settled by its appeal
/// @param consumed          bitmap of the jobs that went into a checkpoint, overturned since or not
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

/// A seat of a committee.
/// @param node        id of the validator
/// @param revealed    it revealed
/// @param abstained   it revealed an abstention: no fee, no penalty, not counted for the quorum
/// @param commitment  its commitment; zero before it commits and after it reveals
/// @param accept      revealed bitmap of accepted jobs, limited to those submitted
/// @param fraud       revealed bitmap of fraudulent jobs, limited to those submitted
struct Seat {
    uint32 node;
    bool revealed;
    bool abstained;
    bytes32 commitment;
    uint256 accept;
    uint256 fraud;
}

/// @title IRoundsFacts
/// @notice Events, errors and views shared by both halves of the code of `Rounds`.
/// @dev An appeal takes the next round number. CommitteeDrawn, VoteCommitted, RevealStarted, VoteRevealed,
/// CommitteeRedrawn, RoundTallied, JurorSettled, RoundSettled and RoundVoided are emitted for appeals as well, under
/// the appeal's number; `appealAt` tells whether a number is an appeal's.
interface IRoundsFacts {
    /// @notice A round was opened.
    /// @param round          number of the round
    /// @param run            id of the run
    /// @param step           training step, as given by the coordinator; opaque here
    /// @param policyVersion  checkpoint version the rollouts must come from
    /// @param jobs           number of jobs
    /// @param slotCount      validator slots now
    /// @param reserved       credits reserved, see `IRounds.open`
    /// @param deadline       end of work, a timestamp in seconds
    /// @param assignments    packed as for `IRounds.open`
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

    /// @notice A part of a batch was taken.
    /// @param round      number of the round
    /// @param node       id of the worker
    /// @param batch      number of the batch in its round
    /// @param beacon     hash of the opening block as the worker signed it; not checked on chain
    /// @param leaves     packed leaves, see `IRounds.submit`
    /// @param uri        where the artifacts can be fetched; opaque here
    /// @param signature  by the node key
    event Submitted(
        uint256 indexed round,
        uint32 indexed node,
        uint8 batch,
        bytes32 beacon,
        bytes leaves,
        string uri,
        bytes signature
    );

    /// @notice A part of a batch was left out; other parts of the batch were taken.
    /// @param round   number of the round
    /// @param node    node id in the part
    /// @param index   position of the part in the batch, from 0
    /// @param reason  why
    event SubmissionRefused(uint256 indexed round, uint32 indexed node, uint256 index, Refusal reason);

    /// @notice Work has ended with at least one job submitted.
    /// @param round      number of the round
    /// @param submitted  bitmap of the jobs submitted
    /// @param deadline   end of the draw, a timestamp in seconds
    event RoundClosed(uint256 indexed round, uint256 submitted, uint40 deadline);

    /// @notice A committee was seated.
    /// @param round      number of the round or appeal
    /// @param attempt    number of redraws, 0 to 3
    /// @param seedBlock  number of the seed block
    /// @param seed       its hash
    /// @param jurors     ids of the validators by seat
    /// @param deadline   end of committing, a timestamp in seconds
    event CommitteeDrawn(
        uint256 indexed round, uint8 attempt, uint64 seedBlock, bytes32 seed, uint32[] jurors, uint40 deadline
    );

    /// @notice A juror committed its vote.
    /// @param round       number of the round or appeal
    /// @param juror       id of the validator
    /// @param attempt     attempt of the committee
    /// @param commitment  see `IRounds.commit`
    event VoteCommitted(uint256 indexed round, uint32 indexed juror, uint8 attempt, bytes32 commitment);

    /// @notice Revealing has begun: the last seat committed, or the first juror revealed after the commit deadline.
    /// @param round     number of the round or appeal
    /// @param attempt   attempt of the committee
    /// @param deadline  end of revealing, a timestamp in seconds
    event RevealStarted(uint256 indexed round, uint8 attempt, uint40 deadline);

    /// @notice A juror revealed its vote, as it committed it.
    /// @param round         number of the round or appeal
    /// @param juror         id of the validator
    /// @param attempt       attempt of the committee
    /// @param accept        bitmap of accepted jobs
    /// @param fraud         bitmap of fraudulent jobs
    /// @param reasons       see `IRounds.reveal`
    /// @param evidenceRoot  see `IRounds.reveal`
    /// @param salt          random word of the commitment
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

    /// @notice A committee reached its verdict.
    /// @param round     number of the round or appeal
    /// @param attempt   attempt of the committee
    /// @param accepted  bitmap of the jobs accepted or unavailable
    /// @param fraud     bitmap of the jobs fraudulent or unavailable
    /// @param deadline  end of the challenge window, a timestamp in seconds; for an appeal, the time of the tally
    event RoundTallied(uint256 indexed round, uint8 attempt, uint256 accepted, uint256 fraud, uint40 deadline);

    /// @notice A committee had no quorum: every seat will be drawn again.
    /// @param round     number of the round or appeal
    /// @param attempt   attempt of the next committee, 1 to 3
    /// @param deadline  end of the draw, a timestamp in seconds
    event CommitteeRedrawn(uint256 indexed round, uint8 attempt, uint40 deadline);

    /// @notice Accepted jobs went into a checkpoint.
    /// @param round  number of the round
    /// @param run    id of the run
    /// @param jobs   bitmap of the jobs
    event JobsConsumed(uint256 indexed round, uint256 indexed run, uint256 jobs);

    /// @notice A job that went into a checkpoint is no longer accepted; that checkpoint and its successors depend on
    /// it.
    /// @param round  number of the round
    /// @param run    id of the run
    /// @param jobs   bitmap of the job
    event JobsTainted(uint256 indexed round, uint256 indexed run, uint256 jobs);

    /// @notice The verdict on a job was appealed.
    /// @param appeal     number of the appeal
    /// @param round      number of the round appealed against
    /// @param appellant  account that appealed
    /// @param job        number of the job
    /// @param against    verdict appealed against
    /// @param node       worker that submitted the job
    /// @param units      units it claimed
    /// @param deposit    credits deposited, see `ISettlement.appeal`
    /// @param deadline   end of the draw, a timestamp in seconds
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

    /// @notice An appeal has ended. See `ISettlement.appeal` for the amounts, all in credits.
    /// @param appeal     number of the appeal
    /// @param round      number of the round appealed against
    /// @param job        number of the job
    /// @param verdict    final verdict on the job
    /// @param decided    false if no majority of the appeal's seats named one verdict
    /// @param fees       paid to the appeal's jurors from the deposit
    /// @param awarded    slashed tokens given to the appellant
    /// @param forfeited  part of the deposit paid to the treasury
    event AppealDecided(
        uint256 indexed appeal,
        uint256 indexed round,
        uint8 job,
        Verdict verdict,
        bool decided,
        uint256 fees,
        uint256 awarded,
        uint256 forfeited
    );

    /// @notice An appealed job was settled.
    /// @param round    number of the round
    /// @param node     worker that submitted the job
    /// @param job      number of the job
    /// @param verdict  its final verdict
    /// @param units    units paid for
    /// @param paid     credits paid
    event AppealedJobSettled(
        uint256 indexed round, uint32 indexed node, uint8 job, Verdict verdict, uint256 units, uint256 paid
    );

    /// @notice A part of a batch was settled. Jobs ever appealed are in none of the bitmaps; a part with no other jobs
    /// has no event.
    /// @param round     number of the round
    /// @param node      id of the worker
    /// @param batch     number of the batch
    /// @param accepted  bitmap of the part's accepted or unavailable jobs
    /// @param fraud     bitmap of its fraudulent or unavailable jobs
    /// @param void_     bitmap of its other jobs
    /// @param units     units paid for
    /// @param paid      credits paid
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

    /// @notice A juror was paid. Not emitted for absent and abstaining seats.
    /// @param round  number of the round or appeal
    /// @param juror  id of the validator
    /// @param bits   number of submitted jobs on which its vote equals the final verdict; 0 if there was no quorum
    /// @param paid   credits: jurorFee * bits / number of jobs submitted, rounded down; jurorFee if there was no quorum
    event JurorSettled(uint256 indexed round, uint32 indexed juror, uint16 bits, uint256 paid);

    /// @notice A round ended with a verdict and everything paid, or an appeal ended decided.
    /// @param round     number of the round or appeal
    /// @param released  credits of its reserve returned to escrow; 0 for an appeal
    event RoundSettled(uint256 indexed round, uint256 released);

    /// @notice A round ended without a verdict, or an appeal ended undecided.
    /// @param round     number of the round or appeal
    /// @param released  credits of its reserve returned to escrow; 0 for an appeal
    event RoundVoided(uint256 indexed round, uint256 released);

    /// @notice The jobs of a void round are no longer in flight.
    /// @param round  number of the round
    /// @param jobs   number of jobs
    event JobsFreed(uint256 indexed round, uint16 jobs);

    /// @notice The round is not in the required state.
    /// @param round  number of the round
    /// @param state  its state
    error WrongState(uint256 round, State state);

    /// @notice The function is for the run's coordinator only.
    /// @param coordinator  coordinator by the terms in effect
    /// @param caller       the caller
    error NotCoordinator(address coordinator, address caller);

    /// @notice The function is for the market only.
    /// @param caller  the caller
    error NotMarket(address caller);

    /// @notice The assignments have a trailing fragment, or do not list 1 to 256 jobs.
    error BadAssignments();

    /// @notice The assignments are not those of the round, or the round has ended.
    /// @param given   keccak256 of those given
    /// @param stored  keccak256 of those of the round; zero once it has ended
    error WrongAssignments(bytes32 given, bytes32 stored);

    /// @notice A listed node has not joined the run at its present rules. Raised by the market.
    /// @param run   id of the run
    /// @param node  id of the node
    error NotJoined(uint256 run, uint32 node);

    /// @notice The checkpoint version was not published.
    /// @param run      id of the run
    /// @param version  the version
    error UnknownVersion(uint256 run, uint32 version);

    /// @notice Too few validators serve the run: they must fill the committee and an appeal's committee together, and be
    /// a third of the validators that serve any run.
    /// @param eligible  number of eligible validators that serve the run
    /// @param need      number needed
    error TooFewValidators(uint256 eligible, uint256 need);

    /// @notice The deadline has passed.
    /// @param deadline  timestamp in seconds
    /// @param now_      timestamp of the block
    error TooLate(uint256 deadline, uint256 now_);

    /// @notice The deadline has not passed yet.
    /// @param deadline  timestamp in seconds
    /// @param now_      timestamp of the block
    error TooEarly(uint256 deadline, uint256 now_);

    /// @notice A batch has more than 64 leaves.
    /// @param given  number of leaves
    error TooManyLeaves(uint256 given);

    /// @notice The last part of a batch is incomplete.
    /// @param length  length of the batch in bytes
    /// @param need    length the last part would need
    error BatchCutOff(uint256 length, uint256 need);

    /// @notice The hash of the seed block is not available yet.
    /// @param seedBlock  number of the block
    error SeedNotReady(uint256 seedBlock);

    /// @notice The caller is not the key of a seated validator.
    /// @param round  number of the round or appeal
    /// @param juror  id of the caller's node; 0 if none
    error NotSeated(uint256 round, uint32 juror);

    /// @notice The juror has committed.
    /// @param juror  id of the validator
    error AlreadyCommitted(uint32 juror);

    /// @notice The juror has revealed.
    /// @param juror  id of the validator
    error AlreadyRevealed(uint32 juror);

    /// @notice The juror did not commit.
    /// @param juror  id of the validator
    error NotCommitted(uint32 juror);

    /// @notice The vote is not the one committed.
    /// @param given      its commitment
    /// @param committed  the juror's commitment
    error WrongReveal(bytes32 given, bytes32 committed);

    /// @notice There must be one reason for each submitted job that is not accepted.
    /// @param given  number of reasons
    /// @param need   number of such jobs
    error WrongReasons(uint256 given, uint256 need);

    /// @notice The batch is not the one taken under this number.
    /// @param batch   number of the batch
    /// @param given   its keccak256
    /// @param stored  digest of the batch; zero if there is none
    error WrongBatch(uint8 batch, bytes32 given, bytes32 stored);

    /// @notice The batch is settled.
    /// @param batch  number of the batch
    error AlreadySettled(uint8 batch);

    /// @notice Jobs to be consumed are not accepted.
    /// @param round  number of the round
    /// @param jobs   bitmap of these jobs
    error NotAccepted(uint256 round, uint256 jobs);

    /// @notice Jobs to be consumed were consumed before.
    /// @param round  number of the round
    /// @param jobs   bitmap of these jobs
    error AlreadyConsumed(uint256 round, uint256 jobs);

    /// @notice The round belongs to another run.
    /// @param round  number of the round
    /// @param run    id of the run given
    error WrongRun(uint256 round, uint256 run);

    /// @notice The run offered no appeals when the round opened, or the round is itself an appeal.
    /// @param round  number of the round
    error AppealsNotOffered(uint256 round);

    /// @notice The job was appealed before.
    /// @param round  number of the round
    /// @param job    number of the job
    error AlreadyAppealed(uint256 round, uint8 job);

    /// @notice The batch does not contain the job.
    /// @param round  number of the round
    /// @param job    number of the job
    error NotSubmitted(uint256 round, uint8 job);

    /// @notice Every part of the batch was left out.
    /// @param reason  why the first part was; None for an empty batch
    error NothingTaken(Refusal reason);

    /// @notice New rounds are paused.
    error NewRoundsPaused();

    /// @notice The round cannot end yet.
    /// @param round    number of the round
    /// @param batches  number of batches not settled
    /// @param appeals  number of appeals not decided
    error NotFinished(uint256 round, uint256 batches, uint256 appeals);

    /// @notice Registry or market name another `Rounds`, or the market another registry.
    error WrongDeployment();

    /// @notice A fraudulent job would cost more than the bond behind it.
    /// @param fraudSlash  wei slashed for a fraudulent job
    /// @param bondPerJob  the registry's bond behind each job
    error SlashAboveBond(uint256 fraudSlash, uint256 bondPerJob);

    /// @notice An appellant could gain more than a fraudulent job costs: a worker could plant faults, see them accepted, and
    /// live on appealing them.
    /// @param appealBounty  maximum credits a successful appellant is awarded besides its fees
    /// @param fraudSlash    wei slashed for a fraudulent job
    error BountyAboveSlash(uint256 appealBounty, uint256 fraudSlash);

    /// @notice Number of rounds opened, appeals included; also the newest number.
    function roundCount() external view returns (uint256);

    /// @notice Number of the appeal of a job; 0 if it was not appealed.
    /// @param round  number of the round
    /// @param job    number of the job
    /// @return appealed  number of the appeal
    function appealOf(uint256 round, uint8 job) external view returns (uint256 appealed);

    /// @notice keccak256 of a batch as `settle` takes it; zero if there is none, once it is settled, and once the round
    /// has ended.
    /// @dev A void round keeps its digests until its jobs are freed.
    /// @param round  number of the round
    /// @param batch  number of the batch
    function batchDigest(uint256 round, uint8 batch) external view returns (bytes32);

    /// @notice The contract that pauses new rounds and names the treasury.
    function admin() external view returns (IAdmin);

    /// @notice The node registry.
    function registry() external view returns (IRegistry);

    /// @notice The market of runs.
    function market() external view returns (IMarket);
}

/// @title ISettlement
/// @notice Functions of `Rounds` that follow a verdict, and its views of rounds; their code is in `Settlement`, to which
/// `Rounds` passes every call that it has no function for. Call them at `Rounds`.
interface ISettlement is IRoundsFacts {
    /// @notice Appeals the verdict on one submitted job, once, within the challenge window. Anyone may call it.
    /// @dev Reverts `TooLate` past the window, and if the round was tallied so late that the appeal with its redraws
    /// could outlast maxRoundSeconds.
    /// @dev The deposit, taken from the caller's free credits, is appealBond + (a + 3 * (a - 1) / 2) * jurorFee with a =
    /// appealSeats: the bond and the maximum fees (three committees one vote short of a quorum, then a full one).
    /// @dev The appeal is judged as a round of its own, by a committee of appealSeats without members of the first. It
    /// starts at Closed; `draw`, `commit`, `reveal`, `tally` and `expire` take its number. It is decided if t =
    /// (a + 1) / 2 of its seats name the same verdict, void included; t of fraud and unavailable together name unavailable.
    /// Otherwise it is undecided: votes split, not drawn in time, no quorum in four attempts, or expired. The job then has
    /// its final verdict and is settled at once:
    ///
    ///     appealed against   t name accepted, fraud, void   t name unavailable             undecided
    ///     fraud              the verdict named              fraud                          void
    ///     accepted           the verdict named              unavailable if not consumed,   accepted
    ///                                                       otherwise accepted
    ///     void, unavailable  the verdict named              unchanged                      unchanged
    ///
    /// The other jobs of the round appealed against do not wait for it.
    /// @dev If t name accepted, each juror of the first committee that revealed fraud on the job pays
    /// min(overturnPenalty, bond), and if t name fraud, each that revealed accepted; taken is the sum. Any other appeal
    /// costs no juror anything. If t name accepted, fraud or void, each juror that revealed unavailable has a strike.
    /// @dev Amounts reported by `AppealDecided`:
    ///  - fees: paid to the appeal's jurors from the deposit, as in any round;
    ///  - forfeited: appealBond if t name the verdict appealed against and it is not unavailable, otherwise 0; goes to
    ///    the treasury as credits;
    ///  - awarded: min(fees, taken), plus min(appealBounty, taken - min(fees, taken), (taken - 1) / 2) if taken is not 0
    ///    and the verdict named is not the one appealed against. The part of taken that is not awarded stays with the
    ///    registry for the treasury.
    /// @dev The appellant gets back deposit - fees - forfeited (`DepositPaidOut`), and awarded (`CreditsGranted`), both
    /// as credits.
    /// @param round  number of the round, in state Tallied
    /// @param job    number of the job
    /// @param batch  number of the batch that holds it
    /// @param parts  that batch, packed as for `settle`
    /// @return appealed  number of the appeal
    function appeal(uint256 round, uint8 job, uint8 batch, bytes calldata parts) external returns (uint256 appealed);

    /// @notice Settles one batch after the challenge window: pays accepted jobs, slashes fraudulent ones, frees all.
    /// Anyone may call it, for batches in any order.
    /// @dev Jobs ever appealed are left out. An accepted job is paid min(units, maxUnits) * pricePerUnit; each
    /// fraudulent one costs its node fraudSlash, at most the bond left. The last batch ends the round as `finish` does,
    /// unless an appeal is pending.
    /// @dev A batch as taken, big-endian, in the order submitted and without the parts left out: for each part uint32
    /// node, uint8 count, count leaves of 41 bytes (see `IRounds.submit`).
    /// @param round        number of the round, in state Tallied
    /// @param batch        number of the batch
    /// @param assignments  as given to `open`
    /// @param parts        the batch as taken; its keccak256 must equal `batchDigest`
    function settle(uint256 round, uint8 batch, bytes calldata assignments, bytes calldata parts) external;

    /// @notice Ends a round whose batches are all settled and appeals all decided: pays its jurors, frees missing jobs,
    /// releases the rest of the reserve. Anyone may call it.
    /// @dev Must be called if an appeal was pending when the last batch was settled: deciding the appeal does not end
    /// the round.
    /// @dev Each juror that revealed and did not abstain is paid jurorFee * bits / number of jobs submitted, rounded
    /// down; bits counts the submitted jobs on which its vote equals the verdict, as appeals have left it, and is not
    /// unavailable.
    /// @param round        number of the round, in state Tallied
    /// @param assignments  as given to `open`
    function finish(uint256 round, bytes calldata assignments) external;

    /// @notice Frees the jobs of a round that became void after its close, or expired. Anyone may call it, once.
    /// @dev A round void at its close frees them there.
    /// @param round        number of the round, in state Void
    /// @param assignments  as given to `open`
    function free(uint256 round, bytes calldata assignments) external;

    /// @notice Marks accepted jobs as trained on. Market only.
    /// @dev Allowed from the tally on, within the challenge window as well.
    /// @param run    id of the run
    /// @param round  number of a round of this run, in state Tallied or Settled; not an appeal
    /// @param jobs   bitmap of jobs, all accepted and not consumed before
    function consume(uint256 run, uint256 round, uint256 jobs) external;

    /// @notice A round or appeal; zeros for a number never given.
    function roundOf(uint256 round) external view returns (Round memory);

    /// @notice An appeal; zeros if the number is not an appeal's. Kept after the appeal has ended.
    function appealAt(uint256 appealed) external view returns (Appeal memory);

    /// @notice Seats of the present committee, in state Voting or Tallied; otherwise empty.
    function seatsOf(uint256 round) external view returns (Seat[] memory);

    /// @notice Protocol-wide penalties.
    function terms() external view returns (RoundsTerms memory);
}

/// @title IJudgement
/// @notice Functions of `Rounds` up to a verdict; their code is in `Rounds`.
interface IJudgement is IRoundsFacts {
    /// @notice Opens a round: lists nodes for its jobs and reserves its maximum cost. Coordinator only.
    /// @dev Requires that new rounds are not paused, the run is not closed, every node has joined at the present rules
    /// and has capacity, and the validators that may be drawn fill the committee and an appeal's committee together.
    /// @dev Reserve: jobs * maxUnits * pricePerUnit + (c + 3 * (c - 1) / 2) * jurorFee with c =
    /// committee: three committees one vote short of a quorum, then a full one.
    /// @dev The hash of this block is the beacon, from which prompts and sampling noise follow off chain
    /// (protocol/wire/seeds.py).
    /// @dev Packed assignments, big-endian, 5 bytes for each listing: uint32 node, uint8 count - 1. Jobs are numbered
    /// from 0 in this order. A node may be listed more than once.
    /// @param run            id of the run
    /// @param step           training step, emitted only
    /// @param policyVersion  a published checkpoint version
    /// @param assignments    packed assignments of 1 to 256 jobs
    /// @return round  number of the new round
    function open(uint256 run, uint64 step, uint32 policyVersion, bytes calldata assignments)
        external
        returns (uint256 round);

    /// @notice Takes a batch of signed parts, one for each node, up to the work deadline. Anyone may send it.
    /// @dev A part is left out (`SubmissionRefused`) if it is malformed, names a job not assigned to its node or
    /// submitted before, or is not signed by the node key. Reverts `NothingTaken` if all are left out.
    /// @dev The last missing job closes the round; the draw's seed is then the hash of this block or a later one.
    /// @dev Packed batch, big-endian, for each part: uint32 node, uint8 count, count leaves, bytes32 beacon, uint16
    /// length, uri of this length, 65 bytes signature. At most 64 leaves in all parts together. The batch is numbered
    /// in order of arrival.
    /// @dev A leaf is 41 bytes: uint8 job, uint64 units, bytes32 artifactRoot; ascending by job within a part.
    /// @dev The node key signs, EIP-712, `Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)`
    /// in the domain ("Assize Rounds", "1", chain id, this contract).
    /// @dev beacon, uri and artifactRoot are opaque here; jurors judge them. Artifact and root are defined in
    /// protocol/wire/rollout.py.
    /// @param round        number of the round, in state Open
    /// @param assignments  as given to `open`
    /// @param parts        packed batch
    function submit(uint256 round, bytes calldata assignments, bytes calldata parts) external;

    /// @notice Ends work after its deadline with jobs missing. Anyone may call it.
    /// @dev With no job submitted the round is void at once, and its jobs are freed.
    /// @param round        number of the round, in state Open
    /// @param assignments  as given to `open`
    function close(uint256 round, bytes calldata assignments) external;

    /// @notice Seats the committee from the hash of the seed block. Past the deadline, or maxRoundSeconds after the
    /// opening, ends the round as void or the appeal as undecided instead. Anyone may call it.
    /// @dev Seed block: closeBlock + k * W, the newest such block before this one. W is 8191 if the chain serves the
    /// hash from its history contract (EIP-2935), otherwise 256. `SeedNotReady` until there is one.
    /// @dev Try i = 0, 1, … yields the slot uint256(keccak256(abi.encode(seed, attempt, i))) % slotCount for i < 4 *
    /// slotCount, and i % slotCount after that, with uint8 attempt and uint256 i. Slots already drawn or not in
    /// `Round.eligible` are skipped, until all seats are filled in order.
    /// @param round  number of the round or appeal, in state Closed
    function draw(uint256 round) external;

    /// @notice Commits the vote of a seat, up to the commit deadline. Key of a seated validator only, once.
    /// @dev The commitment is keccak256(abi.encode(chainId, address(this), round, attempt, juror, accept, fraud,
    /// keccak256(reasons), evidenceRoot, salt)), with juror the validator's node id as uint32, attempt as uint8, and
    /// the others as in `reveal`.
    /// @param round       number of the round or appeal, in state Voting
    /// @param commitment  hash of the vote
    function commit(uint256 round, bytes32 commitment) external;

    /// @notice Reveals a committed vote, once all seats have committed or the commit deadline has passed, up to the end
    /// of revealing. Key of a seated validator only, once.
    /// @dev The last reveal tallies the round, if all that committed have revealed. It does not tally an appeal, whose
    /// outcome moves tokens: a reveal must not depend on a token transfer.
    /// @dev A job in both bitmaps is voted unavailable, in neither void.
    /// @dev Reasons are one byte for each submitted job not voted accepted, ascending by job. Only their number is
    /// checked here; the codes are defined in protocol/wire/reasons.py.
    /// @dev An abstention has accept = fraud = 0 and the single reason 0xff, for any number of jobs submitted. It earns
    /// no fee, costs no penalty, and does not count for the quorum.
    /// @param round         number of the round or appeal, in state Voting
    /// @param accept        bitmap of accepted or unavailable jobs; jobs not submitted are ignored
    /// @param fraud         bitmap of fraudulent or unavailable jobs; jobs not submitted are ignored
    /// @param reasons       why jobs are not accepted
    /// @param evidenceRoot  keccak256 of the juror's evidence bundle; opaque here, defined in protocol/wire/evidence.py
    /// @param salt          random word
    function reveal(
        uint256 round,
        uint256 accept,
        uint256 fraud,
        bytes calldata reasons,
        bytes32 evidenceRoot,
        bytes32 salt
    ) external;

    /// @notice Counts the votes, after the reveal deadline or once all that committed have revealed. Anyone may do so.
    /// @dev A majority is t = (committee + 1) / 2, counted over all seats: a job is accepted, fraud or unavailable if t
    /// seats voted so, each counted apart; absent and abstaining seats count against all three. Otherwise it is void.
    /// @dev With fewer than t votes, abstentions not counted, there is no quorum: those votes earn the full jurorFee and
    /// every seat is drawn again, up to three times, without the seats that did not vote, as long as validators for the
    /// committee and an appeal's committee remain. After the fourth attempt the round is void, or the appeal undecided.
    /// @dev A seat that committed and did not reveal pays min(absencePenalty, bond). A seat that did neither pays the
    /// same in a committee that reached its quorum, and nothing otherwise.
    /// @dev If no seat committed, the reveal window is skipped.
    /// @param round  number of the round or appeal, in state Voting
    function tally(uint256 round) external;

    /// @notice Ends a round without a verdict as void, or an appeal as undecided, maxRoundSeconds after the round was
    /// opened. Anyone may call it.
    /// @param round  number of the round or appeal, in state Open, Closed or Voting
    function expire(uint256 round) external;
}

/// @title IRounds
/// @notice The life of a round: open, submit, close, draw, commit, reveal, tally, (appeal), settle, finish. Rounds are
/// numbered from 1, appeals among them; jobs, batches, seats, slots and attempts from 0.
/// @notice Calldata is hashed and emitted, not stored: callers resupply it, and it is compared with its hash.
/// @notice Anyone may move a round on once the phase's deadline has passed, or as soon as there is nothing left to wait
/// for.
/// @dev A job not submitted in time is missing: neither accepted nor fraudulent, and unpaid. Missing jobs are freed
/// when the round ends.
/// @dev Trust: block producers can bias a seed by withholding a block. A majority of a committee decides, and a
/// majority of an appeal's committee overrules it. No round is stuck: every phase has a way on after its deadline, and
/// `expire` after maxRoundSeconds.
/// @dev Signatures are 65 bytes: r, s, v with v 27 or 28 and s in the lower half order.
/// @dev Constructor: IRegistry registry, IMarket market, RoundsTerms terms. Reverts `WrongDeployment` unless registry
/// and market name this address as their `rounds()`, and the market names the registry, and `SlashAboveBond` if
/// fraudSlash is more than the registry's bondPerJob, and `BountyAboveSlash` if appealBounty is more than fraudSlash.
interface IRounds is IJudgement, ISettlement {}
