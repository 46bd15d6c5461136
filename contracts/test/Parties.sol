// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption} from "../src/interfaces/IMarket.sol";
import {Role} from "../src/interfaces/IRegistry.sol";
import {Round, SettledLeaves, State, Submission} from "../src/interfaces/IRounds.sol";
import {Scenario} from "./Scenario.sol";

/// @title Parties: every party of a market, honest and not, one verb a call
/// @notice What a call cannot do in the present state it leaves; successes are counted by verb, so that a handler that always
/// reverts is seen.
contract Parties is Scenario {
    uint64 internal constant UNITS = 500;
    uint256 private constant RECENT = 4;
    mapping(bytes32 verb => uint256) public done;

    modifier counted(bytes32 verb) {
        _;
        ++done[verb];
    }

    function open(uint8 first, uint8 second) external counted("open") {
        openRound(bytes.concat(listing(workers[0], bound(first, 1, 4)), listing(workers[1], bound(second, 1, 4))));
    }

    function submit(uint256 pick, uint8 skipped) public counted("submit") {
        uint256 round = _roundIn(State.Open, pick);
        rounds.submit(round, _assignments(round), _submissions(round, skipped % 3));
        skippedIn[round] = skipped % 3;
    }

    mapping(uint256 round => uint256) public skippedIn;

    function close(uint256 pick) public counted("close") {
        uint256 round = _roundIn(State.Open, pick);
        rounds.close(round, _assignments(round));
    }

    function draw(uint256 pick) public counted("draw") {
        mine(1);
        rounds.draw(_roundIn(State.Closed, pick));
    }

    function commit(uint256 pick, uint256 seat) external counted("commit") {
        uint256 round = _roundIn(State.Voting, pick);
        uint32[] memory jurors = jurorsOf(round);
        (uint256 accept, uint256 fraud) = _vote(round, seat % jurors.length);
        commitVote(round, jurors[seat % jurors.length], accept, fraud, reasonsFor(round, accept));
    }

    function reveal(uint256 pick, uint256 seat) external counted("reveal") {
        uint256 round = _roundIn(State.Voting, pick);
        uint32[] memory jurors = jurorsOf(round);
        (uint256 accept, uint256 fraud) = _vote(round, seat % jurors.length);
        revealVote(round, jurors[seat % jurors.length], accept, fraud, reasonsFor(round, accept));
    }

    /// A whole committee at once, so that runs get past voting often enough.
    function vote(uint256 pick) public counted("vote") {
        uint256 round = _roundIn(State.Voting, pick);
        uint32[] memory jurors = jurorsOf(round);
        require(jurors.length != 0, "no committee");
        for (uint256 i; i < jurors.length; ++i) {
            (uint256 accept, uint256 fraud) = _vote(round, i);
            commitVote(round, jurors[i], accept, fraud, reasonsFor(round, accept));
        }
        for (uint256 i; i < jurors.length; ++i) {
            (uint256 accept, uint256 fraud) = _vote(round, i);
            revealVote(round, jurors[i], accept, fraud, reasonsFor(round, accept));
        }
    }

    function tally(uint256 pick) public counted("tally") {
        rounds.tally(_roundIn(State.Voting, pick));
    }

    function settle(uint256 pick) public counted("settle") {
        uint256 round = _roundIn(State.Tallied, pick);
        SettledLeaves[] memory batch = settled(_submissions(round, skippedIn[round]));
        rounds.settle(round, 0, _assignments(round), batch);
    }

    function free(uint256 pick) public counted("free") {
        uint256 round = _roundIn(State.Void, pick);
        rounds.free(round, _assignments(round));
    }

    function publish(uint256 pick, uint256 jobs) external counted("publish") {
        uint256 round = _roundIn(State.Tallied, pick);
        Round memory stored = rounds.roundOf(round);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, jobs & stored.accepted & ~stored.consumed);
        uint32 version = market.runOf(run).version + 1;
        vm.prank(trainer);
        market.publish(run, version, keccak256("manifest"), consumed);
    }

    function topUp(uint256 node, uint128 amount) external counted("topUp") {
        amount = uint128(bound(amount, 1, 10 ether));
        address payer = address(uint160(0x1000 + done["topUp"]));
        give(payer, amount, address(registry));
        uint32 picked = uint32(bound(node, 1, 5));
        vm.prank(payer);
        registry.topUp(picked, amount);
    }

    function redeem(uint256 node, uint256 amount) external counted("redeem") {
        address owner = registry.ownerOf(uint32(bound(node, 1, 5)));
        uint256 most = credits.balanceOf(owner);
        vm.prank(owner);
        credits.redeem(bound(amount, 1, most));
    }

    function fund(uint128 amount) external counted("fund") {
        amount = uint128(bound(amount, 1, 1 ether));
        fundRun(run, amount);
    }

    /// Everyone does their part for some steps, so that runs reach every state.
    function advance(uint256 pick, uint8 steps, uint8 skipped) external counted("advance") {
        uint256 count = rounds.roundCount();
        uint256 back = pick % (count < RECENT ? count : RECENT);
        for (uint256 i; i < bound(steps, 3, 7); ++i) {
            _step(count - back, back, skipped);
        }
    }

    function _step(uint256 round, uint256 back, uint8 skipped) private {
        Round memory stored = rounds.roundOf(round);
        bool late = block.timestamp > stored.deadline;
        if (stored.state == State.Open && stored.batches == 0 && !late) submit(back, skipped);
        else if (stored.state == State.Open) _lapseAndClose(round, back);
        else if (stored.state == State.Closed) draw(back);
        else if (stored.state == State.Voting && stored.committed == 0 && !late) vote(back);
        else if (stored.state == State.Voting) _lapseAndTally(round, back);
        else if (stored.state == State.Tallied) settle(back);
        else if (stored.state == State.Void && stored.assignmentsHash != 0) free(back);
    }

    function _lapseAndClose(uint256 round, uint256 back) private {
        if (skippedIn[round] != 0) vm.warp(rounds.roundOf(round).deadline + 1);
        close(back);
    }

    function _lapseAndTally(uint256 round, uint256 back) private {
        Round memory stored = rounds.roundOf(round);
        if (stored.committed != stored.revealed || !stored.revealing) {
            vm.warp(stored.deadline + stored.revealSeconds + 1);
        }
        tally(back);
    }

    /// Someone falls silent: the present phase of a round runs out.
    function lapse(State state, uint256 pick) external counted("lapse") {
        uint256 deadline = rounds.roundOf(_roundIn(state, pick)).deadline;
        if (block.timestamp <= deadline) vm.warp(deadline + 1);
        mine(1);
    }

    function retire(uint256 node) external counted("retire") {
        // Only a newcomer, so that the market itself goes on.
        address owner = address(uint160(0x2000 + node % 1000));
        uint32 newcomer = registerNode(Role.Worker, owner, 1);
        vm.prank(owner);
        registry.retire(newcomer);
    }

    function withdraw(uint256 node) external counted("withdraw") {
        uint32 gone = uint32(bound(node, 6, registry.nodeCount()));
        address owner = registry.ownerOf(gone);
        vm.warp(block.timestamp + UNBONDING);
        vm.prank(owner);
        registry.withdraw(gone);
    }

    // Views for the invariants

    function contracts() external view returns (address, address, address, address, address) {
        return (address(token), address(registry), address(credits), address(market), address(rounds));
    }

    function theRun() external view returns (uint256) {
        return run;
    }

    function theTreasury() external view returns (address) {
        return treasury;
    }

    function theRequester() external view returns (address) {
        return requester;
    }

    // Round k's assignments follow from the nodes' jobs, which the handler fixed at opening.
    mapping(uint256 round => bytes) private _listed;

    /// One of the newest rounds in `state`, so that most calls have something to act on.
    function _roundIn(State state, uint256 pick) private view returns (uint256) {
        uint256 count = rounds.roundCount();
        uint256 start = pick % RECENT;
        for (uint256 i; i < RECENT; ++i) {
            uint256 back = (start + i) % RECENT;
            if (back < count && rounds.roundOf(count - back).state == state) return count - back;
        }
        return count;
    }

    function _assignments(uint256 round) private view returns (bytes memory) {
        return _listed[round];
    }

    function openRound(bytes memory assignments) internal override returns (uint256 round) {
        round = super.openRound(assignments);
        _listed[round] = assignments;
    }

    /// One submission a node, or without that of one of them (`skipped` 1 or 2).
    function _submissions(uint256 round, uint256 skipped) private view returns (Submission[] memory items) {
        bytes memory assignments = _listed[round];
        uint256 first = uint8(assignments[4]) + 1;
        uint256 second = uint8(assignments[9]) + 1;
        items = new Submission[](skipped == 0 ? 2 : 1);
        uint256 next;
        if (skipped != 1) items[next++] = submission(round, workers[0], leavesOf(0, first, UNITS));
        if (skipped != 2) items[next] = submission(round, workers[1], leavesOf(first, second, UNITS));
    }

    /// Jurors mostly agree; a seat differs by a bit, and the truth by the round.
    function _vote(uint256 round, uint256 seat) private pure returns (uint256 accept, uint256 fraud) {
        uint256 truth = uint256(keccak256(abi.encode(round)));
        accept = truth | (uint256(1) << (seat + round % 3));
        fraud = round % 7 == 0 ? ~accept & 1 : 0;
    }
}
