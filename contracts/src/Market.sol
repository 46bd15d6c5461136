// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ICredits} from "./interfaces/ICredits.sol";
import {Consumption, IMarket, Run, RunTerms} from "./interfaces/IMarket.sol";
import {IRegistry, Role} from "./interfaces/IRegistry.sol";
import {IRounds} from "./interfaces/IRounds.sol";

/// @title Market
/// @notice As `IMarket` specifies.
contract Market is IMarket {
    /// Most seats of a first committee.
    uint256 private constant MAX_COMMITTEE = 15;
    /// Most jobs of one round.
    uint256 private constant MAX_JOBS = 256;

    IRegistry public immutable registry;
    ICredits public immutable credits;
    address public immutable rounds;

    /// @inheritdoc IMarket
    uint256 public runCount;
    mapping(uint256 => Run) private _runs;
    /// @inheritdoc IMarket
    mapping(uint256 run => mapping(uint32 node => bytes32)) public joinedAt;
    /// @inheritdoc IMarket
    mapping(uint256 run => mapping(uint32 version => bytes32)) public manifestRootOf;

    constructor(IRegistry registry_, ICredits credits_, address rounds_) {
        registry = registry_;
        credits = credits_;
        rounds = rounds_;
    }

    modifier onlyRounds() {
        if (msg.sender != rounds) revert NotRounds(msg.sender);
        _;
    }

    /// @inheritdoc IMarket
    function open(RunTerms calldata terms, bytes32 manifestRoot, string calldata uri) external returns (uint256 run) {
        _check(terms);
        if (manifestRoot == 0) revert BadTerms("manifestRoot");
        run = ++runCount;
        _runs[run].requester = msg.sender;
        _runs[run].terms = terms;
        manifestRootOf[run][0] = manifestRoot;
        emit RunOpened(run, msg.sender, terms, manifestRoot, uri);
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
    function join(uint256 run, uint32 node, bytes32 rulesHash) external {
        Run storage stored = _known(run);
        if (stored.closed) revert RunIsClosed(run);
        _requireOwner(node);
        if (registry.nodeOf(node).role != Role.Worker) revert NotWorker(node);
        bytes32 present = stored.terms.rulesHash;
        if (rulesHash != present) revert WrongRules(rulesHash, present);
        joinedAt[run][node] = rulesHash;
        emit NodeJoined(run, node, rulesHash);
    }

    /// @inheritdoc IMarket
    function leave(uint256 run, uint32 node) external {
        _known(run);
        _requireOwner(node);
        delete joinedAt[run][node];
        emit NodeLeft(run, node);
    }

    /// @inheritdoc IMarket
    function publish(uint256 run, uint32 version, bytes32 manifestRoot, Consumption[] calldata consumed) external {
        Run storage stored = _known(run);
        if (msg.sender != stored.terms.trainer) revert NotTrainer(run, stored.terms.trainer, msg.sender);
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
    function runOf(uint256 run) external view returns (Run memory) {
        return _known(run);
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

    function _check(RunTerms calldata terms) private view {
        if (terms.coordinator == address(0)) revert BadTerms("coordinator");
        if (terms.trainer == address(0)) revert BadTerms("trainer");
        if (terms.rulesHash == 0) revert BadTerms("rulesHash");
        if (terms.maxUnits == 0) revert BadTerms("maxUnits");
        if (terms.committee % 2 == 0 || terms.committee > MAX_COMMITTEE) revert BadTerms("committee");
        // Appeals are not offered yet: their seats and their window stay at none.
        if (terms.appealSeats != 0) revert BadTerms("appealSeats");
        if (terms.challengeSeconds != 0) revert BadTerms("challengeSeconds");
        if (terms.workSeconds == 0) revert BadTerms("workSeconds");
        if (terms.drawSeconds == 0) revert BadTerms("drawSeconds");
        if (terms.commitSeconds == 0) revert BadTerms("commitSeconds");
        if (terms.revealSeconds == 0) revert BadTerms("revealSeconds");
        _checkBounds(terms);
    }

    /// A round with its redraw must end before a bond behind it can leave, and its reserve must fit.
    function _checkBounds(RunTerms calldata terms) private view {
        uint256 voting = uint256(terms.drawSeconds) + terms.commitSeconds + terms.revealSeconds;
        if (terms.workSeconds + 2 * voting > registry.terms().unbondingDelay) revert BadTerms("seconds");
        uint256 most =
            MAX_JOBS * terms.maxUnits * uint256(terms.pricePerUnit) + 2 * MAX_COMMITTEE * uint256(terms.jurorFee);
        if (most > type(uint128).max) revert BadTerms("pricePerUnit");
    }
}
