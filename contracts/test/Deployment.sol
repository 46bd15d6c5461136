// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Admin} from "../src/Admin.sol";
import {Credits} from "../src/Credits.sol";
import {Market} from "../src/Market.sol";
import {Registry} from "../src/Registry.sol";
import {Rounds} from "../src/Rounds.sol";
import {Traps} from "../src/Traps.sol";
import {Token} from "../src/Token.sol";
import {MarketTerms} from "../src/interfaces/IMarket.sol";
import {IRegistry, RegistryTerms, Role} from "../src/interfaces/IRegistry.sol";
import {IRounds, RoundsTerms} from "../src/interfaces/IRounds.sol";
import {Base} from "./Base.sol";

/// @title Deployment: the contracts with their terms, and nodes in their registry
abstract contract Deployment is Base {
    uint128 internal constant BOND_PER_JOB = 10 ether;
    uint128 internal constant VALIDATOR_BOND = 100 ether;
    uint40 internal constant ACTIVATION = 60;
    uint40 internal constant UNBONDING = 7 days;
    uint128 internal constant FRAUD_SLASH = 6 ether;
    uint128 internal constant ABSENCE_PENALTY = 1 ether;
    uint128 internal constant OVERTURN_PENALTY = 4 ether;
    uint128 internal constant APPEAL_BOND = 500_000;
    uint128 internal constant APPEAL_BOUNTY = 1 ether;
    uint40 internal constant NOTICE = 1 days;
    uint40 internal constant MAX_ROUND = 2 days;
    uint32 internal constant MIN_COMMIT = 60;
    uint32 internal constant MIN_REVEAL = 30;
    uint128 internal constant MIN_FEE = 10;
    uint16 internal constant MAX_STRIKES = 3;
    uint48 internal constant ADMIN_DELAY = 3 days;

    address internal governor = address(0x60E);
    address internal treasury = address(0x7EA5);
    address internal stranger = address(0x574);

    Token internal token;
    Admin internal admin;
    Registry internal registry;
    Credits internal credits;
    Market internal market;
    IRounds internal rounds;
    Traps internal traps;

    mapping(uint32 node => uint256) internal keyOf;

    function deploy() internal virtual {
        uint256 nonce = vm.getNonce(address(this));
        address registryAt = vm.computeCreateAddress(address(this), nonce + 3);
        address marketAt = vm.computeCreateAddress(address(this), nonce + 4);
        address roundsAt = vm.computeCreateAddress(address(this), nonce + 5);
        token = new Token();
        admin = new Admin(ADMIN_DELAY, governor, treasury);
        credits = new Credits(token, marketAt, IRegistry(registryAt));
        registry = new Registry(token, admin, credits, roundsAt, registryTerms());
        market = new Market(registry, credits, roundsAt, marketTerms());
        rounds = IRounds(address(new Rounds(registry, market, roundsTerms())));
        traps = new Traps(rounds);
    }

    function roundsTerms() internal view virtual returns (RoundsTerms memory) {
        return RoundsTerms(FRAUD_SLASH, ABSENCE_PENALTY, OVERTURN_PENALTY, APPEAL_BOND, APPEAL_BOUNTY);
    }

    function marketTerms() internal pure returns (MarketTerms memory) {
        return MarketTerms(NOTICE, MAX_ROUND, MIN_COMMIT, MIN_REVEAL, MIN_FEE, MAX_STRIKES);
    }

    function registryTerms() internal pure returns (RegistryTerms memory) {
        return RegistryTerms(BOND_PER_JOB, VALIDATOR_BOND, ACTIVATION, UNBONDING);
    }

    function ownerNamed(string memory role, uint256 index) internal pure returns (address) {
        return address(uint160(uint256(keccak256(abi.encode("owner", role, index)))));
    }

    function pass(uint256 seconds_) internal {
        vm.warp(block.timestamp + seconds_);
        mine(1);
    }

    function mine(uint256 blocks) internal {
        vm.roll(block.number + blocks);
    }

    function give(address to, uint256 amount, address spender) internal {
        token.drip(to, amount);
        vm.prank(to);
        token.approve(spender, type(uint256).max);
    }

    // Nodes

    function bindingDigest(address owner, address key, Role role, uint32 capacity, uint256 deadline)
        internal
        view
        returns (bytes32)
    {
        bytes32 type_ = keccak256("NodeBinding(address owner,address key,uint8 role,uint32 capacity,uint256 deadline)");
        bytes32 content = keccak256(abi.encode(type_, owner, key, role, capacity, deadline));
        return typed("Assize Registry", address(registry), content);
    }

    function typed(string memory name, address verifier, bytes32 content) internal view returns (bytes32) {
        bytes32 type_ = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        bytes32 domain = keccak256(abi.encode(type_, keccak256(bytes(name)), keccak256("1"), block.chainid, verifier));
        return keccak256(abi.encodePacked(hex"1901", domain, content));
    }

    function signed(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    function binding(address owner, uint256 key, Role role, uint32 capacity) internal view returns (bytes memory) {
        return signed(key, bindingDigest(owner, vm.addr(key), role, capacity, block.timestamp));
    }

    function registerNode(Role role, address owner, uint32 capacity) internal returns (uint32 node) {
        uint256 key = uint256(keccak256(abi.encode("key", registry.nodeCount())));
        give(owner, registry.requiredBond(role, capacity), address(registry));
        bytes memory signature = binding(owner, key, role, capacity);
        vm.prank(owner);
        node = registry.register(role, vm.addr(key), capacity, block.timestamp, signature);
        keyOf[node] = key;
    }

    function keyAddress(uint32 node) internal view returns (address) {
        return vm.addr(keyOf[node]);
    }
}
