// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunTerms} from "../src/interfaces/IMarket.sol";
import {Role} from "../src/interfaces/IRegistry.sol";
import {Seat, State} from "../src/interfaces/IRounds.sol";
import {Deployment} from "./Deployment.sol";

/// One worker's signed part of a batch.
struct Submission {
    uint32 node;
    bytes32 beacon;
    bytes leaves;
    string uri;
    bytes signature;
}

/// @title Scenario: a small market ready for its first round
/// @notice Three validators of three owners, two workers of two owners (capacity 8 each), one funded run with a committee of
/// three that all of them joined. Steps of a round are one call each.
abstract contract Scenario is Deployment {
    uint128 internal constant PRICE = 3;
    uint128 internal constant JUROR_FEE = 1000;
    uint64 internal constant MAX_UNITS = 1_000_000;
    uint128 internal constant ESCROW = 1000 ether;
    bytes32 internal constant RULES = keccak256("rules");
    bytes32 internal constant MANIFEST = keccak256("manifest 0");
    bytes32 internal constant EVIDENCE = keccak256("evidence");
    bytes32 internal constant SALT = keccak256("salt");

    address internal requester = address(0x4E0);
    address internal coordinator = address(0xC00);
    address internal trainer = address(0x74A);

    uint256 internal run;
    uint32[] internal validators;
    uint32[] internal workers;

    function setUp() public virtual {
        vm.warp(1_700_000_000);
        vm.roll(100);
        deploy();
        for (uint256 i; i < 3; ++i) {
            validators.push(registerNode(Role.Validator, ownerNamed("validator", i), 1));
        }
        for (uint256 i; i < 2; ++i) {
            workers.push(registerNode(Role.Worker, ownerNamed("worker", i), 8));
        }
        pass(ACTIVATION);
        run = openRun(runTerms());
        fundRun(run, ESCROW);
        joinRun(run, workers[0]);
        joinRun(run, workers[1]);
    }

    function runTerms() internal view returns (RunTerms memory) {
        return RunTerms({
            coordinator: coordinator,
            trainer: trainer,
            rulesHash: RULES,
            pricePerUnit: PRICE,
            jurorFee: JUROR_FEE,
            maxUnits: MAX_UNITS,
            committee: 3,
            appealSeats: 0,
            workSeconds: 600,
            drawSeconds: 300,
            commitSeconds: 200,
            revealSeconds: 100,
            challengeSeconds: 0
        });
    }

    // Runs

    /// Opens a run that all validators serve.
    function openRun(RunTerms memory terms) internal returns (uint256 run_) {
        vm.prank(requester);
        run_ = market.open(terms, MANIFEST, "https://example.org/run");
        for (uint256 i; i < validators.length; ++i) {
            joinRun(run_, validators[i]);
        }
    }

    function buy(address owner, uint256 amount) internal {
        give(owner, amount, address(credits));
        vm.prank(owner);
        credits.buy(amount);
    }

    function fundRun(uint256 run_, uint128 amount) internal {
        buy(requester, amount);
        vm.prank(requester);
        market.fund(run_, amount);
    }

    function joinRun(uint256 run_, uint32 node) internal {
        (address owner, bytes32 rules) = (registry.ownerOf(node), market.runOf(run_).terms.rulesHash);
        vm.prank(owner);
        market.join(run_, node, rules);
    }

    // Rounds

    function listing(uint32 node, uint256 count) internal pure returns (bytes memory) {
        return abi.encodePacked(node, uint8(count - 1));
    }

    /// Each worker holds four jobs: 0 to 3 and 4 to 7.
    function fourEach() internal view returns (bytes memory) {
        return bytes.concat(listing(workers[0], 4), listing(workers[1], 4));
    }

    function openRound(bytes memory assignments) internal virtual returns (uint256) {
        vm.prank(coordinator);
        return rounds.open(run, 1, 0, assignments);
    }

    function leaf(uint8 job, uint64 units) internal pure returns (bytes memory) {
        return abi.encodePacked(job, units, keccak256(abi.encode("artifact", job)));
    }

    function leavesOf(uint256 first, uint256 count, uint64 units) internal pure returns (bytes memory leaves) {
        for (uint256 job = first; job < first + count; ++job) {
            leaves = bytes.concat(leaves, leaf(uint8(job), units));
        }
    }

    function submissionDigest(uint256 round, uint32 node, bytes32 beacon, bytes memory leaves, string memory uri)
        internal
        view
        returns (bytes32)
    {
        bytes32 type_ = keccak256("Submission(uint256 round,uint32 node,bytes32 beacon,bytes leaves,string uri)");
        bytes32 content = keccak256(abi.encode(type_, round, node, beacon, keccak256(leaves), keccak256(bytes(uri))));
        return typed("Assize Rounds", address(rounds), content);
    }

    function submission(uint256 round, uint32 node, bytes memory leaves) internal view returns (Submission memory) {
        bytes32 beacon = keccak256("beacon");
        string memory uri = "https://example.org/artifacts/";
        bytes memory signature = signed(keyOf[node], submissionDigest(round, node, beacon, leaves, uri));
        return Submission(node, beacon, leaves, uri, signature);
    }

    function one(Submission memory item) internal pure returns (Submission[] memory items) {
        items = new Submission[](1);
        items[0] = item;
    }

    /// A batch as it is submitted.
    function packed(Submission[] memory items) internal pure returns (bytes memory parts) {
        for (uint256 i; i < items.length; ++i) {
            Submission memory item = items[i];
            bytes memory uri = bytes(item.uri);
            parts = bytes.concat(
                parts, _taken(item), abi.encodePacked(item.beacon, uint16(uri.length), uri, item.signature)
            );
        }
    }

    /// The batch as taken, which settling and appealing resupply.
    function settled(Submission[] memory items) internal pure returns (bytes memory parts) {
        for (uint256 i; i < items.length; ++i) {
            parts = bytes.concat(parts, _taken(items[i]));
        }
    }

    function _taken(Submission memory item) private pure returns (bytes memory) {
        return abi.encodePacked(item.node, uint8(item.leaves.length / 41), item.leaves);
    }

    function bothSubmissions(uint256 round, uint64 units) internal view returns (Submission[] memory items) {
        items = new Submission[](2);
        items[0] = submission(round, workers[0], leavesOf(0, 4, units));
        items[1] = submission(round, workers[1], leavesOf(4, 4, units));
    }

    function commitmentOf(uint256 round, uint32 juror, uint256 accept, uint256 fraud, bytes memory reasons)
        internal
        view
        returns (bytes32)
    {
        uint8 attempt = rounds.roundOf(round).attempt;
        bytes memory place = abi.encode(block.chainid, address(rounds), round, attempt, juror);
        return keccak256(bytes.concat(place, abi.encode(accept, fraud, keccak256(reasons), EVIDENCE, SALT)));
    }

    function reasonsFor(uint256 round, uint256 accept) internal view returns (bytes memory reasons) {
        uint256 left = rounds.roundOf(round).submitted & ~accept;
        for (; left != 0; left &= left - 1) {
            reasons = bytes.concat(reasons, hex"05");
        }
    }

    function commitVote(uint256 round, uint32 juror, uint256 accept, uint256 fraud, bytes memory reasons) internal {
        bytes32 commitment = commitmentOf(round, juror, accept, fraud, reasons);
        vm.prank(keyAddress(juror));
        rounds.commit(round, commitment);
    }

    function revealVote(uint256 round, uint32 juror, uint256 accept, uint256 fraud, bytes memory reasons) internal {
        vm.prank(keyAddress(juror));
        rounds.reveal(round, accept, fraud, reasons, EVIDENCE, SALT);
    }

    function jurorsOf(uint256 round) internal view returns (uint32[] memory jurors) {
        Seat[] memory seats = rounds.seatsOf(round);
        jurors = new uint32[](seats.length);
        for (uint256 i; i < seats.length; ++i) {
            jurors[i] = seats[i].node;
        }
    }

    /// Every seat votes the same.
    function voteAll(uint256 round, uint256 accept, uint256 fraud) internal {
        uint32[] memory jurors = jurorsOf(round);
        bytes memory reasons = reasonsFor(round, accept);
        for (uint256 i; i < jurors.length; ++i) {
            commitVote(round, jurors[i], accept, fraud, reasons);
        }
        for (uint256 i; i < jurors.length; ++i) {
            revealVote(round, jurors[i], accept, fraud, reasons);
        }
    }

    /// A round with all eight jobs submitted in one batch, which closes it.
    function submittedRound(uint64 units) internal returns (uint256 round) {
        round = openRound(fourEach());
        mine(1);
        rounds.submit(round, fourEach(), packed(bothSubmissions(round, units)));
    }

    function closedRound(uint64 units) internal returns (uint256 round) {
        round = submittedRound(units);
        mine(1);
    }

    function drawnRound(uint64 units) internal returns (uint256 round) {
        round = closedRound(units);
        rounds.draw(round);
    }

    function talliedRound(uint64 units, uint256 accept, uint256 fraud) internal returns (uint256 round) {
        round = drawnRound(units);
        voteAll(round, accept, fraud);
    }

    /// Closes a round to which something is missing.
    function closeDue(uint256 round, bytes memory assignments) internal {
        if (rounds.roundOf(round).state == State.Open) rounds.close(round, assignments);
    }

    /// Tallies what the last reveal did not: an appeal, or a committee with an absent seat.
    function tallyDue(uint256 round) internal {
        if (rounds.roundOf(round).state == State.Voting) rounds.tally(round);
    }

    function settleRound(uint256 round, uint64 units) internal {
        rounds.settle(round, 0, fourEach(), settled(bothSubmissions(round, units)));
    }

    function requireState(uint256 round, State state) internal view {
        vm.assertEq(uint256(rounds.roundOf(round).state), uint256(state), "state");
    }
}
