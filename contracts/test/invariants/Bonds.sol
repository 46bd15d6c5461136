// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Cause, IRegistry, RegistryTerms, Role} from "../../src/interfaces/IRegistry.sol";
import {RoundsTerms} from "../../src/interfaces/IRounds.sol";
import {Accounts} from "./Accounts.sol";
import {Log} from "./Recorder.sol";

/// @title Bonds: nodes and slashed amounts folded from events
abstract contract Bonds is Accounts {
    uint256 public bonded;
    uint256 public pot;
    mapping(uint32 node => uint256) public bondOf;
    mapping(uint32 node => uint256) public capacityOf;
    mapping(uint32 node => uint256) public inFlightOf;
    mapping(uint32 node => uint256) public retiredAtOf;
    mapping(uint32 node => address) public keyOf;
    mapping(uint32 node => Role) public roleOf;
    /// Fraud found in the present transaction and not slashed yet, in jobs.
    mapping(uint32 node => uint256) internal _unslashed;
    uint256 internal _unslashedJobs;
    mapping(uint256 round => uint256) internal _absences;
    mapping(uint256 round => uint256) internal _overturned;

    function _foldRegistry(Log memory log) internal {
        bytes32 kind = log.topics[0];
        if (kind == IRegistry.TreasurySwept.selector || kind == IRegistry.SlashesAwarded.selector) {
            pot -= _first(log);
            return;
        }
        if (log.topics.length < 2) return;
        uint32 node = uint32(uint256(log.topics[1]));
        if (kind == IRegistry.NodeRegistered.selector) {
            _register(log, node);
        } else if (kind == IRegistry.BondToppedUp.selector) {
            bondOf[node] += _first(log);
            bonded += _first(log);
        } else if (kind == IRegistry.NodeRetired.selector) {
            retiredAtOf[node] = _first(log);
        } else if (kind == IRegistry.BondWithdrawn.selector) {
            _withdraw(node, _first(log));
        } else if (kind == IRegistry.NodeSlashed.selector) {
            _slash(log, node);
        } else if (kind == IRegistry.KeyRotated.selector) {
            keyOf[node] = address(uint160(uint256(log.topics[3])));
        } else if (kind == IRegistry.KeyRevoked.selector) {
            keyOf[node] = address(0);
        }
    }

    function _register(Log memory log, uint32 node) private {
        (Role role,, uint32 capacity, uint256 bond,) = abi.decode(log.data, (Role, uint8, uint32, uint256, uint40));
        bondOf[node] = bond;
        bonded += bond;
        capacityOf[node] = capacity;
        roleOf[node] = role;
        keyOf[node] = address(uint160(uint256(log.topics[3])));
    }

    function _withdraw(uint32 node, uint256 amount) private {
        RegistryTerms memory terms = REGISTRY.terms();
        bool due = retiredAtOf[node] != 0 && block.timestamp >= retiredAtOf[node] + terms.unbondingDelay;
        _hold("no exit before its time", due && inFlightOf[node] == 0);
        _hold("an exit takes the whole bond", amount == bondOf[node]);
        bondOf[node] = 0;
        bonded -= amount;
        keyOf[node] = address(0);
    }

    function _slash(Log memory log, uint32 node) private {
        (Cause cause, uint256 amount, uint256 left) = abi.decode(log.data, (Cause, uint256, uint256));
        uint256 round = uint256(log.topics[3]);
        uint256 bond = bondOf[node];
        RoundsTerms memory terms = ROUNDS.terms();
        uint256 due = terms.absencePenalty;
        if (cause == Cause.Overturned) {
            due = terms.overturnPenalty;
            _overturned[round] += amount;
        } else if (cause == Cause.Fraud) {
            due = terms.fraudSlash * _unslashed[node];
            _unslashedJobs -= _unslashed[node];
            _unslashed[node] = 0;
        } else {
            ++_absences[round];
        }
        _hold("no slash beyond the bond", amount <= bond && left == bond - amount);
        _hold("a slash is what is due", amount == (due < bond ? due : bond) && due != 0);
        bondOf[node] = left;
        bonded -= amount;
        pot += amount;
    }
}
