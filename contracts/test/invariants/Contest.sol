// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "../../src/interfaces/ICredits.sol";
import {Consumption, RunTerms} from "../../src/interfaces/IMarket.sol";
import {Role} from "../../src/interfaces/IRegistry.sol";
import {Appeal, Round, Seat, State} from "../../src/interfaces/IRounds.sol";
import {Scenario, Submission} from "../Scenario.sol";
import {Log, recorder} from "./Recorder.sol";

/// The truth about a job, which every honest juror that can read its bytes finds.
enum Truth {
    Good,
    Fraudulent,
    Worthless
}

/// @title Contest: one adversary against honest parties that do as their daemons do
/// @notice The adversary has workers, validators, a run with terms of its choice and its coordinator, an appellant, and the order
/// of all calls. It withholds files from anybody at any time, votes as it likes or not at all, appeals anything, moves its
/// money around, and lets time pass, but every honest juror has its turn within each window. Honest workers submit good
/// work that all can read, and appeal where a verdict takes their pay; honest jurors vote the truth about what they can
/// read, and unavailable otherwise.
contract Contest is Scenario {
    struct Job {
        uint32 node;
        uint64 units;
        Truth truth;
        bool unreadable;
    }

    struct Play {
        bytes assignments;
        bytes[] batches;
        uint256 jobs;
    }

    uint256 private constant HONEST_VALIDATORS = 12;
    uint256 private constant HOSTILE_VALIDATORS = 3;
    uint64 private constant UNITS = 100_000;
    uint256 internal constant MOST_LIVE = 4;

    address internal villain = address(0xBAD);
    address internal accomplice = address(0xBADD);
    /// Runs of the honest requester come first.
    uint256[] internal runs;
    uint256 internal honestRuns;
    uint256[] internal live;
    mapping(uint256 round => Play) internal plays;
    mapping(uint256 round => mapping(uint256 job => Job)) internal jobs;
    mapping(uint256 appeal => bool) private _hidden;
    mapping(uint256 round => mapping(uint8 attempt => mapping(uint32 juror => uint256))) private _moods;
    uint256 private _plan;
    /// Node whose next job is fraudulent, as all can read.
    uint32 internal planting;
    mapping(uint32 node => bool) public hostile;
    mapping(address owner => bool) private _hostileOwner;
    mapping(uint32 node => uint256) public bondOf;
    mapping(uint32 node => uint256) public duePay;
    mapping(uint32 node => uint256) public earned;
    address[] private _hostileOwners;

    /// A committee with a hostile majority was seated: nothing is promised from then on.
    bool public captured;
    uint256 public start;
    /// Paid to hostile nodes by runs that are not hostile.
    uint256 public workPaid;
    uint256 public feesPaid;
    /// What the good work that it submitted there is worth.
    uint256 public workDue;
    /// A rule that was broken.
    bytes32 public broken;
    mapping(bytes32 => uint256) public seen;

    function setUp() public virtual override {
        vm.warp(1_700_000_000);
        vm.roll(100);
        deploy();
        for (uint256 i; i < HONEST_VALIDATORS + HOSTILE_VALIDATORS; ++i) {
            bool bad = i >= HONEST_VALIDATORS;
            address owner = ownerNamed(bad ? "hostile validator" : "validator", i);
            uint32 node = registerNode(Role.Validator, owner, 1);
            validators.push(node);
            if (bad) _turn(node, owner);
            // A margin, as SECURITY.md tells validators to keep.
            give(owner, VALIDATOR_BOND, address(registry));
            vm.prank(owner);
            registry.topUp(node, VALIDATOR_BOND);
            bondOf[node] = 2 * VALIDATOR_BOND;
        }
        for (uint256 i; i < 4; ++i) {
            bool bad = i >= 2;
            address owner = ownerNamed(bad ? "hostile worker" : "worker", i);
            uint32 node = registerNode(Role.Worker, owner, 64);
            workers.push(node);
            if (bad) _turn(node, owner);
            bondOf[node] = 64 * BOND_PER_JOB;
            buy(owner, 1 ether);
        }
        _enlist(villain);
        _enlist(accomplice);
        pass(ACTIVATION);
        _found(requester, 3, 5);
        _found(requester, 5, 7);
        honestRuns = runs.length;
        buy(villain, 1000 ether);
        buy(accomplice, 10 ether);
        start = wealth();
    }

    function _turn(uint32 node, address owner) private {
        hostile[node] = true;
        _enlist(owner);
    }

    function _enlist(address owner) internal {
        _hostileOwner[owner] = true;
        _hostileOwners.push(owner);
    }

    /// A run that all nodes join; the adversary is coordinator and trainer of each.
    function _found(address from, uint8 committee, uint8 appealSeats) private returns (uint256 run_) {
        RunTerms memory terms = runTerms();
        (terms.committee, terms.appealSeats, terms.challengeSeconds) = (committee, appealSeats, 400);
        terms.rulesHash = keccak256(abi.encode("rules", runs.length));
        buy(from, ESCROW);
        run_ = _open(from, terms);
        vm.prank(from);
        market.fund(run_, ESCROW);
    }

    function _open(address from, RunTerms memory terms) private returns (uint256 run_) {
        vm.prank(from);
        run_ = market.open(terms, MANIFEST, "https://example.org/run");
        runs.push(run_);
        for (uint256 i; i < validators.length; ++i) {
            if (registry.nodeOf(validators[i]).retiredAt == 0) joinRun(run_, validators[i]);
        }
        for (uint256 i; i < workers.length; ++i) {
            joinRun(run_, workers[i]);
        }
    }

    // What the fuzzer calls

    /// A hostile run with any terms that the contracts take. Honest nodes join it, as its windows are not below the minimum.
    function openHostileRun(uint256 seed) external {
        require(runs.length < honestRuns + 2, "enough");
        RunTerms memory terms = runTerms();
        terms.rulesHash = keccak256(abi.encode("rules", runs.length));
        terms.committee = seed % 8 == 0 ? 1 : uint8(3 + 2 * (seed % 2));
        terms.appealSeats = uint8(terms.committee + 2 * ((seed >> 8) % 3));
        if (terms.appealSeats == terms.committee) terms.appealSeats = 0;
        terms.challengeSeconds = terms.appealSeats == 0 ? 0 : uint32(1 + (seed >> 16) % 1000);
        terms.workSeconds = uint32(1 + (seed >> 32) % 1000);
        terms.drawSeconds = uint32(1 + (seed >> 64) % 1000);
        terms.commitSeconds = MIN_COMMIT;
        terms.revealSeconds = MIN_REVEAL;
        terms.pricePerUnit = uint128((seed >> 96) % 1e12);
        terms.jurorFee = uint128(MIN_FEE + (seed >> 128) % 1e6);
        uint256 run_ = _open(villain, terms);
        vm.prank(villain);
        market.fund(run_, 100 ether);
        seen["hostile run"]++;
    }

    /// A round of some jobs for each worker. Honest ones submit at once; the adversary submits anything, in any order, or
    /// nothing, and decides who can read it.
    function openRound(uint256 pick, uint256 seed) external {
        require(live.length < MOST_LIVE, "enough");
        _openRound(runs[pick % runs.length], seed);
    }

    function _openRound(uint256 run_, uint256 seed) internal {
        (bytes memory assignments, uint256 count) = _assign(seed);
        uint32 version = market.runOf(run_).version;
        vm.prank(coordinator);
        uint256 round = rounds.open(run_, 1, version, assignments);
        live.push(round);
        Play storage play = plays[round];
        (play.assignments, play.jobs) = (assignments, count);
        mine(1);
        _submitAll(round, play, seed);
        _act();
        seen["round"]++;
    }

    /// How hostile jurors vote from now on, and whether before or after the honest ones.
    function plan(uint256 seed) external {
        _plan = seed;
    }

    /// Time passes, and everybody does in time what is due.
    function wait(uint256 seconds_) external {
        _passTo(block.timestamp + bound(seconds_, 1, 10 minutes));
    }

    /// Appeals anything, and hides its file from the trial or shows what nobody saw.
    function appeal(uint256 pick, uint256 job, bool hidden) external {
        uint256 round = _tallied(pick);
        uint256 count = plays[round].jobs;
        job = job % count;
        // Three in four are its own jobs, of which there is more to gain.
        for (uint256 i; i < count && (pick >> 128) % 4 != 0 && !hostile[jobs[round][job].node]; ++i) {
            job = (job + 1) % count;
        }
        uint256 appealed = _appeal(accomplice, round, job);
        Job storage tried = jobs[round][job];
        _hidden[appealed] = hidden && hostile[tried.node];
        if (_hidden[appealed]) seen["hidden from a trial"]++;
        else if (tried.unreadable) seen["shown to a trial first"]++;
        _act();
        seen["appeal"]++;
    }

    /// Trains on what is accepted.
    function publish(uint256 pick) external {
        uint256 round = _tallied(pick);
        Round memory stored = rounds.roundOf(round);
        uint256 taken = stored.accepted & ~stored.fraud & ~stored.consumed;
        require(taken != 0, "nothing accepted");
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, taken);
        uint32 version = market.runOf(stored.run).version + 1;
        vm.prank(trainer);
        market.publish(stored.run, version, keccak256(abi.encode(version)), consumed);
        seen["checkpoint"]++;
    }

    /// Moves money among hostile addresses, into bonds and out of credits.
    function shuffle(uint256 seed) external {
        address from = _hostileOwners[seed % _hostileOwners.length];
        address to = _hostileOwners[(seed >> 8) % _hostileOwners.length];
        uint256 have = credits.balanceOf(from);
        if (have > 1 ether && seed % 3 == 0) {
            vm.prank(from);
            credits.redeemTo(to, have - 1 ether);
        }
        uint256 free = token.balanceOf(from);
        if (free == 0) return;
        vm.prank(from);
        token.transfer(to, free / 2);
        seen["shuffle"]++;
    }

    /// A hostile validator retires, revokes its key, leaves a run or comes back to it, in the middle of whatever goes on.
    function desert(uint256 seed) external {
        uint32 node = validators[HONEST_VALIDATORS + seed % HOSTILE_VALIDATORS];
        uint256 run_ = runs[(seed >> 8) % runs.length];
        (address owner, bytes32 joined) = (registry.ownerOf(node), market.joinedAt(run_, node));
        bytes32 rules = market.runOf(run_).terms.rulesHash;
        vm.prank(owner);
        if ((seed >> 16) % 8 == 0) registry.retire(node);
        else if (joined == 0) market.join(run_, node, rules);
        else market.leave(run_, node);
        seen["desertion"]++;
    }

    /// One of the rounds with a verdict that can still change.
    function _tallied(uint256 pick) private view returns (uint256) {
        for (uint256 i; i < live.length; ++i) {
            uint256 round = live[(pick % live.length + i) % live.length];
            if (plays[round].jobs != 0 && rounds.roundOf(round).state == State.Tallied) return round;
        }
        revert("none");
    }

    // Phases

    function _assign(uint256 seed) private view returns (bytes memory assignments, uint256 count) {
        for (uint256 i; i < workers.length; ++i) {
            uint256 share = 1 + (seed >> (8 * i)) % 2;
            if (!registry.isListable(workers[i])) continue;
            assignments = bytes.concat(assignments, listing(workers[i], share));
            count += share;
        }
    }

    function _submitAll(uint256 round, Play storage play, uint256 seed) private {
        uint256 first = 0;
        uint256 at = 0;
        for (uint256 i; i < workers.length; ++i) {
            uint32 node = workers[i];
            if (!registry.isListable(node) && registry.nodeOf(node).inFlight == 0) continue;
            if (at * 5 >= play.assignments.length) break;
            if (uint32(bytes4(_slice(play.assignments, at * 5))) != node) continue;
            uint256 count = uint256(uint8(play.assignments[at * 5 + 4])) + 1;
            ++at;
            bool bad = hostile[node];
            for (uint256 job = first; job < first + count; ++job) {
                uint256 luck = uint256(keccak256(abi.encode(seed, job)));
                Truth truth = bad ? Truth(luck % 3) : Truth.Good;
                jobs[round][job] = Job(node, UNITS, truth, bad && (luck >> 8) % 3 == 0);
                if (node == planting) jobs[round][job] = Job(node, UNITS, Truth.Fraudulent, false);
                if (node == planting) planting = 0;
            }
            first += count;
            if (bad && (seed >> (100 + i)) % 5 == 0) continue;
            Submission[] memory items = one(submission(round, node, leavesOf(first - count, count, UNITS)));
            rounds.submit(round, play.assignments, packed(items));
            play.batches.push(settled(items));
            if (bad) _offer(round, first - count, first);
        }
    }

    /// Counts what good work of the adversary may earn.
    function _offer(uint256 round, uint256 first, uint256 end) private {
        uint256 run_ = rounds.roundOf(round).run;
        if (_isHostileRun(run_)) return;
        for (uint256 job = first; job < end; ++job) {
            if (jobs[round][job].truth == Truth.Good) {
                workDue += uint256(UNITS) * market.runOf(run_).terms.pricePerUnit;
            }
        }
    }

    function _slice(bytes memory data, uint256 at) private pure returns (bytes4 word) {
        assembly ("memory-safe") {
            word := mload(add(add(data, 32), at))
        }
    }

    /// Everybody acts until nothing is left to do at this time.
    function _act() internal virtual {
        recorder.recordLogs();
        bool more = true;
        while (more) {
            more = false;
            for (uint256 i = live.length; i != 0; --i) {
                if (i <= live.length && _step(live[i - 1])) more = true;
            }
        }
        _fold();
    }

    /// Lets time pass from deadline to deadline, so that everyone has a turn in each window.
    function _passTo(uint256 until) internal {
        _act();
        while (block.timestamp < until) {
            uint256 next = until;
            for (uint256 i; i < live.length; ++i) {
                uint256 due = _dueAt(live[i]);
                if (due > block.timestamp && due < next) next = due;
            }
            vm.warp(next);
            mine(1);
            _act();
        }
    }

    function _dueAt(uint256 round) private view returns (uint256) {
        Round memory stored = rounds.roundOf(round);
        return stored.state == State.Tallied ? stored.deadline : uint256(_windowEnd(stored)) + 1;
    }

    /// End of committing, then of revealing.
    function _windowEnd(Round memory stored) private view returns (uint256 end) {
        end = stored.deadline;
        if (stored.state == State.Voting && _lateCommit(stored) && stored.committed != 0) end += stored.revealSeconds;
    }

    function _lateCommit(Round memory stored) private view returns (bool) {
        return !stored.revealing && block.timestamp > stored.deadline;
    }

    /// The next thing that is due of a round. False if it has to wait.
    function _step(uint256 round) private returns (bool) {
        Round memory stored = rounds.roundOf(round);
        if (stored.state == State.Open) return block.timestamp > stored.deadline && _close(round);
        if (stored.state == State.Closed) return _draw(round);
        if (stored.state == State.Voting) return _vote(round, stored);
        if (rounds.appealAt(round).round != 0) return _drop(round);
        if (stored.state == State.Tallied) return _settle(round, stored);
        return stored.state == State.Void && _free(round);
    }

    function _close(uint256 round) private returns (bool) {
        rounds.close(round, plays[round].assignments);
        // A round without submissions is freed as it closes.
        return rounds.roundOf(round).state != State.Void || _drop(round);
    }

    function _draw(uint256 round) private returns (bool) {
        mine(1);
        rounds.draw(round);
        if (rounds.roundOf(round).state != State.Voting) return true;
        uint32[] memory jurors = jurorsOf(round);
        uint256 bad = 0;
        for (uint256 i; i < jurors.length; ++i) {
            if (hostile[jurors[i]]) ++bad;
        }
        if (2 * bad > jurors.length) captured = true;
        if (bad != 0) seen["hostile seat"]++;
        return true;
    }

    /// Honest jurors commit and reveal at once, hostile ones before or after them, if they do.
    function _vote(uint256 round, Round memory stored) private returns (bool) {
        bool first = _plan % 2 == 0;
        if (!stored.revealing && block.timestamp <= stored.deadline) {
            bool more = _commitAll(round, stored.attempt, first);
            return _commitAll(round, stored.attempt, !first) || more;
        }
        if (block.timestamp <= _windowEnd(stored) && stored.committed != stored.revealed) {
            bool more = _revealAll(round, stored.attempt, !first);
            if (_revealAll(round, stored.attempt, first) || more) return true;
        }
        stored = rounds.roundOf(round);
        if (block.timestamp <= _windowEnd(stored) && stored.committed != stored.revealed) return false;
        rounds.tally(round);
        return true;
    }

    function _mood(uint256 round, uint8 attempt, uint32 juror) private returns (uint256) {
        uint256 set = _moods[round][attempt][juror];
        if (set == 0) {
            _moods[round][attempt][juror] = set = 1 + uint256(keccak256(abi.encode(_plan, round, juror))) % 8;
        }
        return set - 1;
    }

    function _commitAll(uint256 round, uint8 attempt, bool bad) private returns (bool any) {
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            uint32 juror = seats[i].node;
            if (seats[i].commitment != 0 || seats[i].revealed || hostile[juror] != bad) continue;
            if (rounds.roundOf(round).revealing) return any;
            uint256 mood = _mood(round, attempt, juror);
            if (bad && mood == 0) continue;
            (uint256 accept, uint256 fraud, bytes memory reasons) = _ballot(round, juror, mood);
            commitVote(round, juror, accept, fraud, reasons);
            any = true;
        }
    }

    function _revealAll(uint256 round, uint8 attempt, bool bad) private returns (bool any) {
        Seat[] memory seats = rounds.seatsOf(round);
        for (uint256 i; i < seats.length; ++i) {
            uint32 juror = seats[i].node;
            if (seats[i].commitment == 0 || seats[i].revealed || hostile[juror] != bad) continue;
            uint256 mood = _mood(round, attempt, juror);
            if (bad && mood == 1) continue;
            (uint256 accept, uint256 fraud, bytes memory reasons) = _ballot(round, juror, mood);
            revealVote(round, juror, accept, fraud, reasons);
            any = true;
        }
    }

    /// The truth of an honest juror; a hostile one abstains, or votes the same on all jobs, or the truth.
    function _ballot(uint256 round, uint32 juror, uint256 mood)
        private
        view
        returns (uint256 accept, uint256 fraud, bytes memory reasons)
    {
        uint256 submitted = rounds.roundOf(round).submitted;
        if (hostile[juror] && mood == 2) return (0, 0, hex"ff");
        if (!hostile[juror] || mood > 5) (accept, fraud) = _truth(round, submitted);
        else if (mood == 3) accept = submitted;
        else if (mood == 4) fraud = submitted;
        else (accept, fraud) = (submitted, submitted);
        reasons = reasonsFor(round, accept & ~fraud);
    }

    function _truth(uint256 round, uint256 submitted) private view returns (uint256 accept, uint256 fraud) {
        uint256 parent = rounds.appealAt(round).round;
        for (uint256 job; submitted >> job != 0; ++job) {
            if ((submitted >> job) & 1 == 0) continue;
            Job storage judged = jobs[parent == 0 ? round : parent][job];
            bool gone = parent == 0 ? judged.unreadable : _hidden[round];
            if (gone || judged.truth == Truth.Good) accept |= uint256(1) << job;
            if (gone || judged.truth == Truth.Fraudulent) fraud |= uint256(1) << job;
        }
    }

    /// Appeals of honest workers first; once the window is over, everything is settled.
    function _settle(uint256 round, Round memory stored) private returns (bool) {
        Play storage play = plays[round];
        if (_appealable(round)) return _defend(round, stored);
        if (block.timestamp < stored.deadline) return false;
        for (uint256 batch; batch < play.batches.length; ++batch) {
            if (rounds.batchDigest(round, uint8(batch)) == 0) continue;
            rounds.settle(round, uint8(batch), play.assignments, play.batches[batch]);
        }
        stored = rounds.roundOf(round);
        if (stored.appeals != 0) return false;
        if (stored.state == State.Tallied) rounds.finish(round, play.assignments);
        return _account(round);
    }

    /// True if an honest worker would lose pay by the verdict, and can still appeal.
    function _appealable(uint256 round) private view returns (bool) {
        Round memory stored = rounds.roundOf(round);
        if (stored.appealSeats == 0 || block.timestamp >= stored.deadline || plays[round].jobs == 0) return false;
        for (uint256 job; job < plays[round].jobs; ++job) {
            if (_wronged(round, stored, job) && rounds.appealOf(round, uint8(job)) == 0) return true;
        }
        return false;
    }

    function _wronged(uint256 round, Round memory stored, uint256 job) private view returns (bool) {
        uint256 bit = uint256(1) << job;
        if (hostile[jobs[round][job].node] || stored.submitted & bit == 0) return false;
        return stored.accepted & bit == 0 || stored.fraud & bit != 0;
    }

    function _defend(uint256 round, Round memory stored) private returns (bool) {
        for (uint256 job; job < plays[round].jobs; ++job) {
            if (!_wronged(round, stored, job) || rounds.appealOf(round, uint8(job)) != 0) continue;
            _appeal(registry.ownerOf(jobs[round][job].node), round, job);
        }
        return true;
    }

    function _appeal(address from, uint256 round, uint256 job) private returns (uint256 appealed) {
        Play storage play = plays[round];
        uint256 batch = 0;
        while (uint32(bytes4(_slice(play.batches[batch], 0))) != jobs[round][job].node) ++batch;
        vm.prank(from);
        appealed = rounds.appeal(round, uint8(job), uint8(batch), play.batches[batch]);
        live.push(appealed);
    }

    function _free(uint256 round) private returns (bool) {
        rounds.free(round, plays[round].assignments);
        return _drop(round);
    }

    /// The market is wound up, hostile jurors as they planned.
    function endEverything() external {
        for (uint256 i; i < 64 && live.length != 0; ++i) {
            _passTo(block.timestamp + 1 hours);
        }
        if (live.length != 0) broken = "a round does not end";
    }

    /// What honest workers are due, by the final verdict.
    function _account(uint256 round) private returns (bool) {
        Round memory stored = rounds.roundOf(round);
        uint256 price = market.runOf(stored.run).terms.pricePerUnit;
        for (uint256 job; job < plays[round].jobs; ++job) {
            Job storage done = jobs[round][job];
            uint256 bit = uint256(1) << job;
            if (stored.submitted & bit == 0) continue;
            bool accepted = stored.accepted & bit != 0 && stored.fraud & bit == 0;
            if (stored.accepted & stored.fraud & bit != 0) seen["unavailable"]++;
            else if (stored.fraud & bit != 0) seen["fraud"]++;
            if (rounds.appealOf(round, uint8(job)) != 0) seen["tried"]++;
            if (!hostile[done.node]) duePay[done.node] += uint256(done.units) * price;
            if (!hostile[done.node] && !accepted && !captured) broken = "good work is not accepted";
            if (accepted && done.truth != Truth.Good && !captured) broken = "bad work is accepted";
            bool caught = done.truth == Truth.Fraudulent && !done.unreadable;
            if (caught && (stored.accepted & bit != 0 || stored.fraud & bit == 0) && !captured) {
                broken = "fraud that was seen escapes";
            }
        }
        seen["settled"]++;
        return _drop(round);
    }

    function _drop(uint256 round) private returns (bool) {
        for (uint256 i; i < live.length; ++i) {
            if (live[i] != round) continue;
            live[i] = live[live.length - 1];
            live.pop();
            return true;
        }
        return false;
    }

    /// Reads who was paid by whom.
    function _fold() private {
        Log[] memory logs = recorder.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != ICredits.CreditsEarned.selector) continue;
            uint256 run_ = uint256(logs[i].topics[2]);
            (uint32 node, uint256 amount) = _payment(logs[i]);
            earned[node] += amount;
            if (!hostile[node] || _isHostileRun(run_)) continue;
            if (registry.nodeOf(node).role == Role.Worker) workPaid += amount;
            else feesPaid += amount;
        }
    }

    function _payment(Log memory log) private pure returns (uint32 node, uint256 amount) {
        return abi.decode(log.data, (uint32, uint256));
    }

    function _isHostileRun(uint256 run_) internal view returns (bool) {
        return market.runOf(run_).requester == villain;
    }

    // Views for the checks

    /// All that the adversary owns: tokens, credits, bonds, and the escrow of its runs. Deposits of its pending appeals
    /// are left out, those of others in its runs taken off.
    function wealth() public view virtual returns (uint256 sum) {
        for (uint256 i; i < _hostileOwners.length; ++i) {
            sum += token.balanceOf(_hostileOwners[i]) + credits.balanceOf(_hostileOwners[i]);
        }
        for (uint32 node = 1; node <= nodes(); ++node) {
            if (hostile[node]) sum += registry.nodeOf(node).bond;
        }
        for (uint256 i = honestRuns; honestRuns != 0 && i < runs.length; ++i) {
            sum += market.runOf(runs[i]).escrow + market.runOf(runs[i]).reserved;
        }
        for (uint256 i; i < live.length; ++i) {
            Appeal memory made = rounds.appealAt(live[i]);
            if (made.round == 0 || !_isHostileRun(rounds.roundOf(live[i]).run)) continue;
            sum -= sum < made.deposit ? sum : made.deposit;
        }
    }

    /// Ids of all nodes but those that do nothing are up to this one.
    function nodes() public view virtual returns (uint32) {
        return registry.nodeCount();
    }

    function bondNow(uint32 node) external view returns (uint256) {
        return registry.nodeOf(node).bond;
    }

    function isWorker(uint32 node) external view returns (bool) {
        return registry.nodeOf(node).role == Role.Worker;
    }
}
