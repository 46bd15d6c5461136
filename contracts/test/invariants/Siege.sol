// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../../src/interfaces/IRegistry.sol";
import {Round, State} from "../../src/interfaces/IRounds.sol";
import {Trap, TrapKind, TrapSet} from "../../src/interfaces/ITraps.sol";
import {Contest} from "./Contest.sol";

/// @title Siege: a contest in a full house
/// @notice The adversary also contests slots, so that honest jurors are displaced in the middle of rounds, and plants faults
/// in its own run's jobs. Honest holders match a contest or let it pass.
contract Siege is Contest {
    struct Planted {
        uint256 set;
        uint256 run;
        Trap trap;
    }

    uint256 private constant SLOTS = 256;
    uint256 private constant MOST_CONTESTS = 3;
    uint256 private constant MOST_SETS = 4;

    /// Nodes of the honest and of the adversary; those that only fill slots come after them.
    uint32 private _players;
    uint32[] private _newcomers;
    Planted[] private _planted;

    function setUp() public override {
        super.setUp();
        _players = registry.nodeCount();
        // Their bonds are above all others, so that the slots of those who serve are contested first.
        for (uint256 i = validators.length; i < SLOTS; ++i) {
            address owner = ownerNamed("squatter", i);
            uint32 node = registerNode(Role.Validator, owner, 1);
            hostile[node] = true;
            give(owner, 2 * VALIDATOR_BOND, address(registry));
            vm.prank(owner);
            registry.topUp(node, 2 * VALIDATOR_BOND);
        }
        pass(ACTIVATION);
        for (uint256 i; i < MOST_CONTESTS; ++i) {
            _enlist(ownerNamed("newcomer", i));
            give(ownerNamed("newcomer", i), 10 * VALIDATOR_BOND, address(registry));
        }
        give(villain, 10 ether, address(traps));
        start = wealth();
    }

    // What the fuzzer calls

    /// A newcomer contests the slot with the least bond; an honest holder may match it.
    function contestSlot(uint256 seed) external {
        require(_newcomers.length < MOST_CONTESTS, "enough");
        (uint8 slot, uint128 price) = registry.nextContest();
        uint32 holder = registry.holderOf(slot);
        address owner = ownerNamed("newcomer", _newcomers.length);
        uint256 key = uint256(keccak256(abi.encode("key", registry.nodeCount())));
        bytes memory signature = binding(owner, key, Role.Validator, 1);
        vm.prank(owner);
        uint32 node = registry.contest(vm.addr(key), block.timestamp, signature);
        (keyOf[node], hostile[node]) = (key, true);
        _newcomers.push(node);
        seen["contested"]++;
        if (hostile[holder] || seed % 2 == 0) return;
        uint128 more = price - uint128(registry.nodeOf(holder).bond);
        address keeper = registry.ownerOf(holder);
        give(keeper, more, address(registry));
        vm.prank(keeper);
        registry.topUp(holder, more);
        bondOf[holder] += more;
        seen["matched"]++;
    }

    /// The newcomer takes the slot, whatever its holder is in the middle of.
    function displace(uint256 pick) external {
        uint32 node = _newcomers[pick % _newcomers.length];
        uint32 holder = registry.holderOf(registry.nodeOf(node).slot);
        registry.displace(node);
        seen["displaced"]++;
        if (!hostile[holder]) seen["honest displaced"]++;
    }

    /// A set of one trap in a job of a hostile worker, in a hostile run, which opens a round of it.
    function setTraps(uint256 seed) external {
        require(_planted.length < MOST_SETS && runs.length > honestRuns, "enough");
        uint256 run_ = runs[honestRuns + seed % (runs.length - honestRuns)];
        uint48 next = uint48(rounds.roundCount() + 1);
        uint32 node = workers[2 + (seed >> 8) % 2];
        Trap memory trap = Trap(node, next, next + 40, TrapKind.OtherSeed, bytes32(seed));
        bytes32 root = traps.leafOf(trap);
        uint40 openBy = uint40(block.timestamp + 1 minutes + ((seed >> 16) % 4 == 0 ? 0 : 1 days));
        vm.prank(villain);
        uint256 set_ = traps.set(run_, root, 1, uint128(1 + (seed >> 40) % 1 ether), next, openBy);
        _planted.push(Planted(set_, run_, trap));
        seen["trap set"]++;
        if (live.length == MOST_LIVE || market.runOf(run_).closed) return;
        planting = node;
        _openRound(run_, seed >> 64);
        planting = 0;
    }

    /// Forfeits a set that was not opened in time.
    function forfeitTraps(uint256 pick) external {
        traps.forfeit(_planted[pick % _planted.length].set);
        seen["trap forfeited"]++;
    }

    /// Likewise; and each trap is opened in the first job that the contract takes, unless it is held back.
    function _act() internal override {
        super._act();
        for (uint256 i; i < _planted.length; ++i) {
            bool heldBack = uint256(_planted[i].trap.salt) % 4 == 0;
            for (uint256 j; j < live.length && !heldBack; ++j) {
                if (_opened(_planted[i], live[j])) break;
            }
        }
    }

    function _opened(Planted storage planted, uint256 round) private returns (bool) {
        Round memory stored = rounds.roundOf(round);
        if (stored.run != planted.run || stored.state != State.Tallied) return false;
        for (uint8 job; job < plays[round].jobs; ++job) {
            if (jobs[round][job].node != planted.trap.node) continue;
            try traps.open(planted.set, planted.trap, new bytes32[](0), round, job, plays[round].assignments) {
                seen["trap opened"]++;
                return true;
            } catch {}
        }
        return false;
    }

    // Views for the checks

    /// Likewise, with newcomers' bonds and the deposits behind traps. What squatters hold never changes.
    function wealth() public view override returns (uint256 sum) {
        sum = super.wealth();
        for (uint256 i; i < _newcomers.length; ++i) {
            sum += registry.nodeOf(_newcomers[i]).bond;
        }
        for (uint256 i; i < _planted.length; ++i) {
            TrapSet memory made = traps.setOf(_planted[i].set);
            sum += (made.leaves - made.opened) * uint256(made.bounty);
        }
    }

    function nodes() public view override returns (uint32) {
        return _players == 0 ? super.nodes() : _players;
    }
}
