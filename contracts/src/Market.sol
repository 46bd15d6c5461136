// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ICredits} from "./interfaces/ICredits.sol";
import {Consumption, IMarket, MarketTerms, Run, RunTerms} from "./interfaces/IMarket.sol";
import {IRegistry, Node, Role} from "./interfaces/IRegistry.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Assignments} from "./libraries/Assignments.sol";
import {Bitmaps} from "./libraries/Bitmaps.sol";
import {Committees} from "./libraries/Committees.sol";

/// @title Market
/// @notice Implements `IMarket`.
contract Market is IMarket {
    using SafeCast for uint256;

    /// The latest announced terms of a run.
    struct Announcement {
        uint40 effectiveAt;
        RunTerms terms;
    }

    /// Slots whose validators consent to something.
    /// @param passings  number of passings of slots taken into account; a slot that passed on since counts as unset
    struct Consent {
        uint256 slots;
        uint256 passings;
    }

    /// Rounds of a run in which a validator left its seat empty, abstained, or could not read what a trial could.
    /// @param count  number since `since`
    /// @param since  timestamp in seconds of the first one counted
    /// @param round  number of the newest round counted; none but a newer one is
    struct Strikes {
        uint32 count;
        uint40 since;
        uint64 round;
    }

    uint256 private constant WORD_BITS = 256;
    /// A round needs a third of the validators that serve any run.
    uint256 private constant LEAST_SHARE = 3;
    /// Maximum jobs in one round.
    uint256 private constant MAX_JOBS = 256;

    /// @inheritdoc IMarket
    IRegistry public immutable registry;
    /// @inheritdoc IMarket
    ICredits public immutable credits;
    /// @inheritdoc IMarket
    address public immutable rounds;
    uint40 private immutable NOTICE;
    uint40 private immutable MAX_ROUND;
    uint32 private immutable MIN_COMMIT;
    uint32 private immutable MIN_REVEAL;
    uint128 private immutable MIN_JUROR_FEE;
    uint16 private immutable MAX_STRIKES;
    /// The registry's unbonding delay.
    uint40 private immutable STRIKE_PERIOD;

    /// @inheritdoc IMarket
    uint256 public runCount;
    /// `terms` are those before the latest announcement.
    mapping(uint256 => Run) private _runs;
    mapping(uint256 => Announcement) private _announced;
    /// Rules hashes a run has or had, announced ones included.
    mapping(uint256 run => mapping(bytes32 rulesHash => bool)) private _rulesUsed;
    /// @inheritdoc IMarket
    mapping(uint256 run => mapping(uint32 node => bytes32)) public joinedAt;
    /// The same as bitmaps: node n is bit n % 256 of word n / 256, so that nodes listed together share reads.
    mapping(uint256 run => mapping(bytes32 rulesHash => mapping(uint256 => uint256))) private _members;
    /// Validators that serve a run under its rules.
    mapping(uint256 run => mapping(bytes32 rulesHash => Consent)) private _serving;
    /// Validators that serve any run.
    Consent private _servingAny;
    /// Number of runs a validator serves.
    mapping(uint32 node => uint256) private _runsServed;
    mapping(uint256 run => mapping(uint32 node => Strikes)) private _strikes;
    /// @inheritdoc IMarket
    mapping(uint256 run => mapping(uint32 version => bytes32)) public manifestRootOf;

    /// @param registry_  node registry
    /// @param credits_   credits that escrow is locked in
    /// @param rounds_    address at which `Rounds` will be deployed
    /// @param terms_     protocol-wide delays and minimums; maxRoundSeconds must be less than the registry's unbonding delay and
    ///                   the least windows at least a second
    constructor(IRegistry registry_, ICredits credits_, address rounds_, MarketTerms memory terms_) {
        if (terms_.maxRoundSeconds >= registry_.terms().unbondingDelay) revert BadTerms("maxRoundSeconds");
        if (terms_.minCommitSeconds == 0) revert BadTerms("minCommitSeconds");
        if (terms_.minRevealSeconds == 0) revert BadTerms("minRevealSeconds");
        if (terms_.maxStrikes == 0) revert BadTerms("maxStrikes");
        registry = registry_;
        credits = credits_;
        rounds = rounds_;
        NOTICE = terms_.noticeSeconds;
        MAX_ROUND = terms_.maxRoundSeconds;
        MIN_COMMIT = terms_.minCommitSeconds;
        MIN_REVEAL = terms_.minRevealSeconds;
        MIN_JUROR_FEE = terms_.minJurorFee;
        MAX_STRIKES = terms_.maxStrikes;
        STRIKE_PERIOD = registry_.terms().unbondingDelay;
    }

    modifier onlyRounds() {
        if (msg.sender != rounds) revert NotRounds(msg.sender);
        _;
    }

    /// @inheritdoc IMarket
    function open(RunTerms calldata terms_, bytes32 manifestRoot, string calldata uri) external returns (uint256 run) {
        _check(terms_);
        if (manifestRoot == 0) revert BadTerms("manifestRoot");
        run = ++runCount;
        _runs[run].requester = msg.sender;
        _runs[run].terms = terms_;
        _rulesUsed[run][terms_.rulesHash] = true;
        manifestRootOf[run][0] = manifestRoot;
        emit RunOpened(run, msg.sender, terms_, manifestRoot, uri);
    }

    /// @inheritdoc IMarket
    function fund(uint256 run, uint128 amount) external {
        Run storage stored = _requested(run);
        if (stored.closed) revert RunIsClosed(run);
        if (amount == 0) revert ZeroAmount();
        uint128 escrow = stored.escrow + amount;
        stored.escrow = escrow;
        emit RunFunded(run, msg.sender, amount, escrow);
        credits.lock(msg.sender, run, amount);
    }

    /// @inheritdoc IMarket
    function close(uint256 run) external {
        Run storage stored = _requested(run);
        if (stored.closed) revert RunIsClosed(run);
        stored.closed = true;
        emit RunClosed(run, msg.sender);
    }

    /// @inheritdoc IMarket
    function refund(uint256 run, uint128 amount) external {
        Run storage stored = _requested(run);
        if (!stored.closed) revert RunNotClosed(run);
        if (amount == 0) revert ZeroAmount();
        uint128 escrow = _takeEscrow(run, stored, amount);
        emit RunRefunded(run, msg.sender, amount, escrow);
        credits.unlock(msg.sender, run, amount);
    }

    /// @inheritdoc IMarket
    function announce(uint256 run, RunTerms calldata terms_) external {
        Run storage stored = _requested(run);
        if (stored.closed) revert RunIsClosed(run);
        _check(terms_);
        if (_rulesUsed[run][terms_.rulesHash]) revert RulesUsedBefore(run, terms_.rulesHash);
        _rulesUsed[run][terms_.rulesHash] = true;
        Announcement storage announced = _announced[run];
        if (_inEffect(announced)) stored.terms = announced.terms;
        uint40 effectiveAt = (block.timestamp + NOTICE).toUint40();
        announced.effectiveAt = effectiveAt;
        announced.terms = terms_;
        emit TermsAnnounced(run, msg.sender, terms_, effectiveAt);
    }

    /// @inheritdoc IMarket
    function join(uint256 run, uint32 node, bytes32 rulesHash) external {
        Run storage stored = _known(run);
        if (stored.closed) revert RunIsClosed(run);
        _requireOwner(node);
        Node memory joining = registry.nodeOf(node);
        bytes32 present = _terms(run).rulesHash;
        // slither-disable-next-line incorrect-equality
        bool announced =
            joining.role == Role.Validator && rulesHash != 0 && rulesHash == _announced[run].terms.rulesHash;
        if (rulesHash != present && !announced) revert WrongRules(rulesHash, present);
        if (joining.role == Role.Worker) _members[run][rulesHash][node / WORD_BITS] |= _bitOf(node);
        else _serve(run, node, joining, rulesHash);
        joinedAt[run][node] = rulesHash;
        emit NodeJoined(run, node, rulesHash);
    }

    /// @inheritdoc IMarket
    function leave(uint256 run, uint32 node) external {
        _known(run);
        if (!_outlived(run, node)) _requireOwner(node);
        _leave(run, node);
    }

    /// @inheritdoc IMarket
    function strike(uint256 run, uint256 round, uint32 node) external onlyRounds {
        Strikes storage strikes = _strikes[run][node];
        if (round <= strikes.round) return;
        strikes.round = round.toUint64();
        if (_strikesPast(strikes)) (strikes.count, strikes.since) = (0, block.timestamp.toUint40());
        uint32 count = strikes.count + 1;
        strikes.count = count;
        emit NodeStruck(run, node, round, count);
        if (count == MAX_STRIKES && joinedAt[run][node] != 0) _leave(run, node);
    }

    /// @inheritdoc IMarket
    function publish(uint256 run, uint32 version, bytes32 manifestRoot, Consumption[] calldata consumed) external {
        Run storage stored = _known(run);
        address trainer = _terms(run).trainer;
        if (msg.sender != trainer) revert NotTrainer(run, trainer, msg.sender);
        if (version <= stored.version) revert VersionNotNext(version, stored.version);
        if (manifestRoot == 0) revert BadTerms("manifestRoot");
        stored.version = version;
        manifestRootOf[run][version] = manifestRoot;
        emit CheckpointPublished(run, version, manifestRoot, consumed);
        for (uint256 i; i < consumed.length; ++i) {
            IRounds(rounds).consume(run, consumed[i].round, consumed[i].jobs);
        }
    }

    /// @inheritdoc IMarket
    function reserve(uint256 run, uint256 round, uint128 amount) external onlyRounds {
        Run storage stored = _known(run);
        _takeEscrow(run, stored, amount);
        stored.reserved += amount;
        emit EscrowReserved(run, round, amount);
    }

    /// @inheritdoc IMarket
    function release(uint256 run, uint256 round, uint128 amount) external onlyRounds {
        Run storage stored = _runs[run];
        stored.reserved -= amount;
        stored.escrow += amount;
        emit EscrowReleased(run, round, amount);
    }

    /// @inheritdoc IMarket
    function pay(uint256 run, uint256 round, uint32 node, address owner, uint128 amount) external onlyRounds {
        _runs[run].reserved -= amount;
        credits.earn(owner, run, round, node, amount);
    }

    /// @inheritdoc IMarket
    // Credits is fixed at deployment, and `earnAll` calls no other contract.
    // slither-disable-next-line reentrancy-no-eth
    function payAll(uint256 run, uint256 round, bytes calldata payments) external onlyRounds {
        _runs[run].reserved -= credits.earnAll(run, round, payments).toUint128();
    }

    /// @inheritdoc IMarket
    function deposit(uint256 run, uint256 round, address owner, uint128 amount) external onlyRounds {
        _runs[run].reserved += amount;
        emit DepositLocked(run, round, owner, amount);
        credits.lock(owner, run, amount);
    }

    /// @inheritdoc IMarket
    function payOut(uint256 run, uint256 round, address to, uint128 amount) external onlyRounds {
        _runs[run].reserved -= amount;
        emit DepositPaidOut(run, round, to, amount);
        credits.unlock(to, run, amount);
    }

    /// @inheritdoc IMarket
    function runOf(uint256 run) external view returns (Run memory present) {
        present = _known(run);
        present.terms = _terms(run);
    }

    /// @inheritdoc IMarket
    function announcedOf(uint256 run) external view returns (RunTerms memory, uint40 effectiveAt) {
        _known(run);
        return (_announced[run].terms, _announced[run].effectiveAt);
    }

    /// @inheritdoc IMarket
    function requireJoined(uint256 run, bytes32 rulesHash, bytes calldata assignments) external view {
        mapping(uint256 => uint256) storage members = _members[run][rulesHash];
        uint256 at = Assignments.first(assignments) / WORD_BITS;
        uint256 word = members[at];
        uint256 length = Assignments.listings(assignments);
        for (uint256 i; i < length; ++i) {
            // The registry checks the number of jobs.
            // slither-disable-next-line unused-return
            (uint32 node,) = Assignments.read(assignments, i);
            if (node / WORD_BITS != at) (at, word) = (node / WORD_BITS, members[node / WORD_BITS]);
            if (word & _bitOf(node) == 0) revert NotJoined(run, node);
        }
    }

    /// @inheritdoc IMarket
    function jurorSlots(uint256 run, bytes32 rulesHash) external view returns (uint256 slots, uint256 least) {
        uint256 eligible = registry.eligible();
        slots = eligible & _current(_serving[run][rulesHash]);
        least = Math.ceilDiv(Bitmaps.count(eligible & _current(_servingAny)), LEAST_SHARE);
    }

    /// @inheritdoc IMarket
    function strikesOf(uint256 run, uint32 node) external view returns (uint256 count, uint256 until) {
        Strikes storage strikes = _strikes[run][node];
        if (!_strikesPast(strikes)) (count, until) = (strikes.count, uint256(strikes.since) + STRIKE_PERIOD);
    }

    /// @inheritdoc IMarket
    function terms() external view returns (MarketTerms memory) {
        return MarketTerms(NOTICE, MAX_ROUND, MIN_COMMIT, MIN_REVEAL, MIN_JUROR_FEE, MAX_STRIKES);
    }

    /// Adds a validator to those that serve a run under its rules.
    function _serve(uint256 run, uint32 node, Node memory joining, bytes32 rulesHash) private {
        if (joining.retiredAt != 0) revert IRegistry.AlreadyRetired(node);
        if (registry.holderOf(joining.slot) != node) revert IRegistry.WaitsForSlot(node);
        Strikes storage strikes = _strikes[run][node];
        if (strikes.count >= MAX_STRIKES && !_strikesPast(strikes)) {
            revert StruckOut(run, node, uint256(strikes.since) + STRIKE_PERIOD);
        }
        uint256 bit = uint256(1) << joining.slot;
        _set(_serving[run][rulesHash], bit, bit);
        if (joinedAt[run][node] == 0 && _runsServed[node]++ == 0) _set(_servingAny, bit, bit);
    }

    function _leave(uint256 run, uint32 node) private {
        bytes32 rulesHash = joinedAt[run][node];
        Node memory leaving = registry.nodeOf(node);
        if (leaving.role == Role.Worker) _members[run][rulesHash][node / WORD_BITS] &= ~_bitOf(node);
        else if (rulesHash != 0) _unserve(run, node, leaving);
        delete joinedAt[run][node];
        emit NodeLeft(run, node);
    }

    /// Removes a validator from a run under the rules in effect and under those announced. Its slot may belong to
    /// another by now.
    function _unserve(uint256 run, uint32 node, Node memory leaving) private {
        bool none = --_runsServed[node] == 0;
        if (registry.holderOf(leaving.slot) != node) return;
        uint256 bit = uint256(1) << leaving.slot;
        _set(_serving[run][_runs[run].terms.rulesHash], bit, 0);
        _set(_serving[run][_announced[run].terms.rulesHash], bit, 0);
        if (none) _set(_servingAny, bit, 0);
    }

    /// True of a validator's service that no later round can use: its run is closed, or it joined at rules which are
    /// neither in effect nor announced.
    function _outlived(uint256 run, uint32 node) private view returns (bool) {
        bytes32 joined = joinedAt[run][node];
        if (joined == 0) return false;
        Node memory serving = registry.nodeOf(node);
        if (serving.role != Role.Validator) return false;
        if (_runs[run].closed) return true;
        bytes32 present = _terms(run).rulesHash;
        // Hashes, which nobody can come close to.
        // slither-disable-next-line incorrect-equality
        if (joined == present || joined == _announced[run].terms.rulesHash) return false;
        // Having joined at rules that were announced and then replaced, it may serve those in effect all the same.
        return (_current(_serving[run][present]) >> serving.slot) & 1 == 0;
    }

    /// Sets the bits in `mask` to those in `bits`.
    function _set(Consent storage consent, uint256 mask, uint256 bits) private {
        (uint256 passed, uint256 passings) = registry.passedSince(consent.passings, consent.slots);
        (consent.slots, consent.passings) = (consent.slots & ~passed & ~mask | bits, passings);
    }

    /// Slots set, without those that passed to another validator since.
    function _current(Consent storage consent) private view returns (uint256) {
        // The number of passings is not needed.
        // slither-disable-next-line unused-return
        (uint256 passed,) = registry.passedSince(consent.passings, consent.slots);
        return consent.slots & ~passed;
    }

    function _strikesPast(Strikes storage strikes) private view returns (bool) {
        return block.timestamp >= uint256(strikes.since) + STRIKE_PERIOD;
    }

    function _bitOf(uint32 node) private pure returns (uint256) {
        return uint256(1) << (node % WORD_BITS);
    }

    function _inEffect(Announcement storage announced) private view returns (bool) {
        uint40 effectiveAt = announced.effectiveAt;
        return effectiveAt != 0 && block.timestamp >= effectiveAt;
    }

    /// The terms of a run in effect now.
    function _terms(uint256 run) private view returns (RunTerms storage) {
        Announcement storage announced = _announced[run];
        return _inEffect(announced) ? announced.terms : _runs[run].terms;
    }

    function _known(uint256 run) private view returns (Run storage stored) {
        stored = _runs[run];
        if (stored.requester == address(0)) revert UnknownRun(run);
    }

    function _requested(uint256 run) private view returns (Run storage stored) {
        stored = _known(run);
        if (msg.sender != stored.requester) revert NotRequester(run, stored.requester, msg.sender);
    }

    function _requireOwner(uint32 node) private view {
        address owner = registry.ownerOf(node);
        if (msg.sender != owner) revert NotNodeOwner(node, owner, msg.sender);
    }

    function _takeEscrow(uint256 run, Run storage stored, uint128 amount) private returns (uint128 escrow) {
        escrow = stored.escrow;
        if (escrow < amount) revert EscrowTooSmall(run, escrow, amount);
        escrow -= amount;
        stored.escrow = escrow;
    }

    function _check(RunTerms calldata terms_) private view {
        if (terms_.coordinator == address(0)) revert BadTerms("coordinator");
        if (terms_.trainer == address(0)) revert BadTerms("trainer");
        if (terms_.rulesHash == 0) revert BadTerms("rulesHash");
        if (terms_.maxUnits == 0) revert BadTerms("maxUnits");
        if (terms_.committee % 2 == 0 || terms_.committee > Committees.MAX_SEATS) revert BadTerms("committee");
        if (terms_.workSeconds == 0) revert BadTerms("workSeconds");
        if (terms_.drawSeconds == 0) revert BadTerms("drawSeconds");
        if (terms_.commitSeconds < MIN_COMMIT) revert BadTerms("commitSeconds");
        if (terms_.revealSeconds < MIN_REVEAL) revert BadTerms("revealSeconds");
        if (terms_.jurorFee < MIN_JUROR_FEE) revert BadTerms("jurorFee");
        uint256 share = uint256(terms_.maxUnits) * terms_.pricePerUnit;
        if (share > IRounds(rounds).terms().fraudSlash) revert BadTerms("pricePerUnit");
        if ((terms_.challengeSeconds == 0) != (terms_.appealSeats == 0)) revert BadTerms("challengeSeconds");
        if (terms_.appealSeats != 0) _checkAppeals(terms_);
        _checkBounds(terms_);
    }

    /// An appeal's committee is larger than the first.
    function _checkAppeals(RunTerms calldata terms_) private pure {
        uint256 seats = terms_.appealSeats;
        bool odd = seats % 2 == 1;
        if (!odd || seats < uint256(terms_.committee) + 2 || seats > Committees.MAX_SEATS) {
            revert BadTerms("appealSeats");
        }
    }

    /// A round with its redraws and an appeal with its own must end within MAX_ROUND, before a bond behind it can be
    /// withdrawn. The reserve must fit in 128 bits.
    function _checkBounds(RunTerms calldata terms_) private view {
        uint256 voting = Committees.longest(terms_.drawSeconds, terms_.commitSeconds, terms_.revealSeconds);
        uint256 longest = terms_.workSeconds + voting;
        if (terms_.appealSeats != 0) longest += terms_.challengeSeconds + voting;
        if (longest > MAX_ROUND) revert BadTerms("seconds");
        uint256 fees = Committees.mostFees(Committees.MAX_SEATS, terms_.jurorFee);
        uint256 most = MAX_JOBS * terms_.maxUnits * uint256(terms_.pricePerUnit) + fees;
        if (most > type(uint128).max) revert BadTerms("jurorFee");
    }
}
