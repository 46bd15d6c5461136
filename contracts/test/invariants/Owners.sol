// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Credits} from "../../src/Credits.sol";
import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {IRegistry, Node, Role} from "../../src/interfaces/IRegistry.sol";
import {World} from "./World.sol";

/// @title Owners: those whose bonds are at stake
abstract contract Owners is World {
    uint256 private constant MOST_NODES = 24;

    function register(uint256 pick) external told {
        require(registry.nodeCount() < MOST_NODES, "enough");
        bool validator = pick % 2 == 0;
        address owner = ownerNamed(validator ? "late validator" : "late worker", pick % 5);
        uint32 node = _enrol(validator ? Role.Validator : Role.Worker, owner, validator ? 1 : uint32(1 + pick % 8));
        if (!validator) workers.push(node);
        _count("register");
    }

    function topUp(uint256 pick, uint128 amount) external told {
        uint32 node = _anyNode(pick);
        amount = uint128(bound(amount, 1, 20 ether));
        // Anyone may.
        give(stranger, amount, address(registry));
        _do("topUp", stranger, address(registry), abi.encodeCall(Registry.topUp, (node, amount)));
    }

    /// Tops up nodes below their required bond.
    function restore(uint256 pick) public told {
        for (uint256 i; i < registry.nodeCount(); ++i) {
            uint32 node = _anyNode(pick % 64 + i);
            Node memory stored = registry.nodeOf(node);
            uint256 need = registry.requiredBond(stored.role, stored.capacity);
            if (stored.retiredAt != 0 || stored.bond >= need) continue;
            give(stored.owner, need - stored.bond, address(registry));
            bytes memory call = abi.encodeCall(Registry.topUp, (node, uint128(need - stored.bond)));
            _due("restore", stored.owner, address(registry), call);
        }
    }

    /// Never so many validators that the runs stand still.
    function retire(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        Node memory stored = registry.nodeOf(node);
        require(stored.retiredAt == 0, "retired");
        require(registry.nodeCount() > 14 || pick % 16 == 0, "few");
        _due("retire", stored.owner, address(registry), abi.encodeCall(Registry.retire, (node)));
    }

    function withdraw(uint256 pick) external told {
        for (uint256 i; i < registry.nodeCount(); ++i) {
            uint32 node = _anyNode(pick % 64 + i);
            Node memory stored = registry.nodeOf(node);
            if (stored.retiredAt == 0 || stored.withdrawn) continue;
            bytes memory call = abi.encodeCall(Registry.withdraw, (node));
            uint256 due = uint256(stored.retiredAt) + UNBONDING;
            if (block.timestamp < due) {
                _warpTo(due - 1);
                _refused("withdraw early", stored.owner, address(registry), call, IRegistry.StillBonded.selector);
                _warpTo(due);
            }
            if (stored.inFlight != 0) {
                _refused("withdraw in flight", stored.owner, address(registry), call, IRegistry.StillBonded.selector);
                continue;
            }
            return _due("withdraw", stored.owner, address(registry), call);
        }
        require(false, "nobody leaves");
    }

    /// Its time has come, its rounds have not ended.
    function leaveInFlight(uint256 pick) external told {
        for (uint256 i; i < workers.length; ++i) {
            uint32 node = workers[(pick % 64 + i) % workers.length];
            Node memory stored = registry.nodeOf(node);
            if (stored.inFlight == 0 || stored.retiredAt != 0 || (node <= 14 && pick % 8 != 0)) continue;
            _due("retire", stored.owner, address(registry), abi.encodeCall(Registry.retire, (node)));
            _warpTo(block.timestamp + UNBONDING);
            bytes memory call = abi.encodeCall(Registry.withdraw, (node));
            bytes4 bonded = IRegistry.StillBonded.selector;
            return _refused("withdraw in flight", stored.owner, address(registry), call, bonded);
        }
        require(false, "nobody in flight");
    }

    function rotateKey(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        Node memory stored = registry.nodeOf(node);
        uint256 key = uint256(keccak256(abi.encode("rotated", node, done["rotateKey"])));
        bytes memory signature = binding(stored.owner, key, stored.role, stored.capacity);
        bytes memory call = abi.encodeCall(Registry.rotateKey, (node, vm.addr(key), block.timestamp, signature));
        _do("rotateKey", stored.owner, address(registry), call);
        keyOf[node] = key;
        _refused("replay a binding", stored.owner, address(registry), call);
    }

    /// The host was broken into; most owners have another key soon.
    function revokeKey(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        Node memory stored = registry.nodeOf(node);
        require(pick % 4 == 0 || node > 14, "spared");
        _do("revokeKey", stored.owner, address(registry), abi.encodeCall(Registry.revokeKey, (node)));
    }

    function renewKeys(uint256 pick) external told {
        for (uint256 i; i < registry.nodeCount(); ++i) {
            uint32 node = _anyNode(pick % 64 + i);
            Node memory stored = registry.nodeOf(node);
            if (!stored.revoked || stored.withdrawn) continue;
            uint256 key = uint256(keccak256(abi.encode("renewed", node, done["renewKeys"])));
            bytes memory signature = binding(stored.owner, key, stored.role, stored.capacity);
            bytes memory call = abi.encodeCall(Registry.rotateKey, (node, vm.addr(key), block.timestamp, signature));
            _due("renewKeys", stored.owner, address(registry), call);
            keyOf[node] = key;
        }
    }

    function join(uint256 pick) external told {
        uint32 node = workers[pick % workers.length];
        uint256 run_ = _anyRun(pick / 7);
        bytes32 rules = market.runOf(run_).terms.rulesHash;
        _due("join", registry.ownerOf(node), address(market), abi.encodeCall(Market.join, (run_, node, rules)));
    }

    function leave(uint256 pick) external told {
        uint32 node = workers[pick % workers.length];
        uint256 run_ = 1 + pick / 7 % market.runCount();
        require(pick % 4 == 0 || node > 14, "spared");
        _due("leave", registry.ownerOf(node), address(market), abi.encodeCall(Market.leave, (run_, node)));
    }

    function redeem(uint256 pick, uint256 amount) external told {
        for (uint256 i; i < people.length; ++i) {
            address owner = people[(pick % 64 + i) % people.length];
            uint256 most = credits.balanceOf(owner);
            if (most == 0) continue;
            bytes memory more = abi.encodeCall(Credits.redeem, (most + 1));
            _refused("redeem more than one has", owner, address(credits), more);
            address to = people[(pick / 64) % people.length];
            bytes memory call = abi.encodeCall(Credits.redeemTo, (to, bound(amount, 1, most)));
            return _due("redeem", owner, address(credits), call);
        }
        require(false, "no credits");
    }
}
