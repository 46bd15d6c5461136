// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption} from "../src/interfaces/IMarket.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {Role} from "../src/interfaces/IRegistry.sol";
import {Trap, TrapKind} from "../src/interfaces/ITraps.sol";
import {Appeals} from "./Appeals.sol";
import {Submission} from "./Scenario.sol";

/// forge's own: keeps the gas of the last call under a name.
interface Meter {
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256);
}

/// @title GasTest: gas of each function at fixed sizes, for the snapshot that `contracts/gas` compares
/// @notice Sixteen workers of sixteen owners with four jobs each, job 0 fraudulent, a committee of three. Nothing is fuzzed.
/// A round has ended before, whose storage the next one uses again. forge measures each call as a transaction of its own there
/// (`--isolate`).
contract GasTest is Appeals {
    uint256 private constant WORKERS = 16;
    uint256 private constant EACH = 4;
    uint256 private constant ACCEPT = type(uint64).max - 1;

    bytes private assignments;

    function setUp() public override {
        super.setUp();
        for (uint256 i = 2; i < WORKERS; ++i) {
            workers.push(registerNode(Role.Worker, ownerNamed("worker", i), 8));
        }
        pass(ACTIVATION);
        for (uint256 i; i < WORKERS; ++i) {
            if (i >= 2) joinRun(run, workers[i]);
            assignments = bytes.concat(assignments, listing(workers[i], EACH));
        }
        uint256 before = _opened();
        mine(1);
        Submission[] memory items = _submissions(before);
        rounds.submit(before, assignments, packed(items));
        mine(1);
        rounds.draw(before);
        voteAll(before, ACCEPT | 1, 0);
        pass(CHALLENGE);
        rounds.settle(before, 0, assignments, settled(items));
    }

    function test_gasOfARound() public {
        (uint256 round, Submission[] memory items) = _tallied();
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, ACCEPT);
        vm.prank(trainer);
        market.publish(run, 1, MANIFEST, consumed);
        _measured("publish");
        pass(CHALLENGE);
        rounds.settle(round, 0, assignments, settled(items));
        _measured("settle");
        registry.sweep();
        _measured("sweep");
    }

    function test_gasOfAnAppeal() public {
        (uint256 round, Submission[] memory items) = _tallied();
        bytes memory batch = settled(items);
        vm.prank(appellant);
        uint256 appealed = rounds.appeal(round, 0, 0, batch);
        _measured("appeal");
        mine(1);
        rounds.draw(appealed);
        _measured("appeal draw");
        voteAll(appealed, 1, 0);
        pass(CHALLENGE);
        rounds.settle(round, 0, assignments, batch);
        rounds.tally(appealed);
        _measured("appeal tally");
        rounds.finish(round, assignments);
        _measured("finish");
    }

    function test_gasOfATrap() public {
        give(requester, 10 ether, address(traps));
        uint48 next = uint48(rounds.roundCount() + 1);
        Trap memory trap = Trap(workers[0], next, next, TrapKind.OtherSeed, "salt");
        Trap memory decoy = Trap(workers[0], next, next, TrapKind.Decoy, "salt");
        (bytes32[] memory left, bytes32[] memory right) = (new bytes32[](1), new bytes32[](1));
        (left[0], right[0]) = (traps.leafOf(decoy), traps.leafOf(trap));
        bytes32 root = Hashes.commutativeKeccak256(left[0], right[0]);
        vm.prank(requester);
        traps.set(run, root, 2, 1 ether, next, uint40(block.timestamp + 30 days));
        _measured("set traps");
        (uint256 round,) = _tallied();
        traps.open(1, trap, left, round, 0, assignments);
        _measured("open trap");
        traps.openDecoy(1, decoy, right);
        _measured("open decoy");
    }

    function test_gasOfAVoidRound() public {
        uint256 round = _opened();
        mine(1);
        rounds.submit(round, assignments, packed(one(_submissions(round)[0])));
        pass(601);
        rounds.close(round, assignments);
        _measured("close");
        pass(MAX_ROUND + 1);
        rounds.expire(round);
        _measured("expire");
        rounds.free(round, assignments);
        _measured("free");
    }

    function test_gasOfANode() public {
        address owner = ownerNamed("newcomer", 0);
        give(owner, 10 * BOND_PER_JOB, address(registry));
        bytes memory signature = binding(owner, 0xBEEF, Role.Worker, 8);
        vm.prank(owner);
        uint32 node = registry.register(Role.Worker, vm.addr(0xBEEF), 8, block.timestamp, signature);
        _measured("register");
        vm.prank(owner);
        registry.topUp(node, 1);
        _measured("topUp");
        vm.prank(owner);
        market.join(run, node, RULES);
        _measured("join");
        vm.startPrank(ownerNamed("validator", 0));
        market.leave(run, validators[0]);
        market.join(run, validators[0], RULES);
        vm.stopPrank();
        _measured("serve");
        vm.prank(owner);
        registry.retire(node);
        _measured("retire");
        pass(UNBONDING);
        vm.prank(owner);
        registry.withdraw(node);
        _measured("withdraw");
    }

    function test_gasOfMoney() public {
        give(requester, ESCROW, address(credits));
        vm.prank(requester);
        credits.buy(ESCROW);
        _measured("buy");
        vm.prank(requester);
        market.fund(run, uint128(ESCROW / 2));
        _measured("fund");
        vm.prank(requester);
        credits.redeem(ESCROW / 4);
        _measured("redeem");
        vm.prank(requester);
        credits.redeemTo(treasury, ESCROW / 4);
        _measured("redeemTo");
    }

    function _opened() private returns (uint256 round) {
        vm.prank(coordinator);
        round = rounds.open(run, 1, 0, assignments);
    }

    function test_gasOfATally() public {
        uint256 round = _drawn();
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < 2; ++i) {
            commitVote(round, jurors[i], ACCEPT, 1, hex"08");
        }
        pass(201);
        revealVote(round, jurors[0], ACCEPT, 1, hex"08");
        pass(101);
        rounds.tally(round);
        _measured("tally");
    }

    function _tallied() private returns (uint256 round, Submission[] memory items) {
        round = _drawn();
        items = _submissions(round);
        _vote(round);
    }

    function _drawn() private returns (uint256 round) {
        round = _opened();
        _measured("open");
        mine(1);
        bytes memory parts = packed(_submissions(round));
        rounds.submit(round, assignments, parts);
        _measured("submit");
        mine(1);
        rounds.draw(round);
        _measured("draw");
    }

    function _vote(uint256 round) private {
        uint32[] memory jurors = jurorsOf(round);
        for (uint256 i; i < jurors.length; ++i) {
            commitVote(round, jurors[i], ACCEPT, 1, hex"08");
        }
        _measured("last commit");
        for (uint256 i; i < jurors.length; ++i) {
            revealVote(round, jurors[i], ACCEPT, 1, hex"08");
            if (i == 0) _measured("reveal");
        }
        _measured("last reveal");
    }

    function _submissions(uint256 round) private view returns (Submission[] memory items) {
        items = new Submission[](WORKERS);
        for (uint256 i; i < WORKERS; ++i) {
            items[i] = submission(round, workers[i], leavesOf(EACH * i, EACH, UNITS));
        }
    }

    function _measured(string memory verb) private {
        Meter(address(vm)).snapshotGasLastCall("verbs", verb);
    }
}
