// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {ICredits} from "../../src/interfaces/ICredits.sol";
import {IMarket} from "../../src/interfaces/IMarket.sol";
import {IRounds} from "../../src/interfaces/IRounds.sol";
import {Log} from "./Recorder.sol";

/// @title Accounts: credits, escrow and reserves as the events alone tell them
abstract contract Accounts {
    Registry internal immutable REGISTRY;
    Market internal immutable MARKET;
    IRounds internal immutable ROUNDS;

    mapping(address owner => uint256) public creditsOf;
    uint256 public locked;
    uint256 public supply;
    mapping(uint256 run => uint256) public escrowOf;
    mapping(uint256 run => uint256) public reservedOfRun;
    mapping(uint256 round => int256) public reservedOf;
    mapping(uint256 run => uint32) public versionOf;
    /// How often a rule was broken that only the events can show.
    mapping(bytes32 rule => uint256) public broken;

    constructor(Registry registry, Market market, IRounds rounds) {
        REGISTRY = registry;
        MARKET = market;
        ROUNDS = rounds;
    }

    function _hold(bytes32 rule, bool holds) internal {
        if (!holds) ++broken[rule];
    }

    function _foldCredits(Log memory log) internal {
        bytes32 kind = log.topics[0];
        address owner = address(uint160(uint256(log.topics[1])));
        if (kind == ICredits.CreditsEarned.selector) return _foldEarned(log, owner);
        uint256 amount = abi.decode(log.data, (uint256));
        if (kind == ICredits.CreditsBought.selector || kind == ICredits.CreditsGranted.selector) {
            creditsOf[owner] += amount;
            supply += amount;
        } else if (kind == ICredits.CreditsRedeemed.selector) {
            creditsOf[owner] -= amount;
            supply -= amount;
        } else if (kind == ICredits.CreditsLocked.selector) {
            creditsOf[owner] -= amount;
            locked += amount;
        } else if (kind == ICredits.CreditsUnlocked.selector) {
            creditsOf[owner] += amount;
            locked -= amount;
        }
    }

    function _foldEarned(Log memory log, address owner) private {
        (uint32 node, uint256 amount) = abi.decode(log.data, (uint32, uint256));
        _hold("earned by the node's owner", REGISTRY.ownerOf(node) == owner);
        locked -= amount;
        creditsOf[owner] += amount;
        reservedOfRun[uint256(log.topics[2])] -= amount;
        reservedOf[uint256(log.topics[3])] -= int256(amount);
    }

    function _foldMarket(Log memory log) internal {
        bytes32 kind = log.topics[0];
        uint256 run = uint256(log.topics[1]);
        if (kind == IMarket.CheckpointPublished.selector) {
            uint32 version = uint32(uint256(log.topics[2]));
            _hold("versions rise", version > versionOf[run]);
            versionOf[run] = version;
        } else if (kind == IMarket.RunFunded.selector) {
            escrowOf[run] += _first(log);
        } else if (kind == IMarket.RunRefunded.selector) {
            escrowOf[run] -= _first(log);
        } else if (kind == IMarket.EscrowReserved.selector) {
            escrowOf[run] -= _first(log);
            _reserve(run, uint256(log.topics[2]), int256(_first(log)));
        } else if (kind == IMarket.EscrowReleased.selector) {
            escrowOf[run] += _first(log);
            _reserve(run, uint256(log.topics[2]), -int256(_first(log)));
        } else if (kind == IMarket.DepositLocked.selector) {
            _reserve(run, uint256(log.topics[2]), int256(_first(log)));
        } else if (kind == IMarket.DepositPaidOut.selector) {
            _reserve(run, uint256(log.topics[2]), -int256(_first(log)));
        }
    }

    function _reserve(uint256 run, uint256 round, int256 amount) private {
        reservedOfRun[run] = uint256(int256(reservedOfRun[run]) + amount);
        reservedOf[round] += amount;
    }

    function _first(Log memory log) internal pure returns (uint256 word) {
        bytes memory data = log.data;
        assembly ("memory-safe") {
            word := mload(add(data, 32))
        }
    }
}
