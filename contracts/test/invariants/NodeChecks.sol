// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Node, Role} from "../../src/interfaces/IRegistry.sol";
import {Checks} from "./Checks.sol";

/// @title NodeChecks: bonds, keys, slots and jobs in flight, at any moment
abstract contract NodeChecks is Checks {
    function checkNodes() internal view {
        bondsAddUp();
        eventsTellEveryNode();
        inFlightIsWhatIsListedAndUnsettled();
        keysAreBoundOnce();
        slotsHoldTheirValidators();
        theServingBitmapIsWhoServes();
        noSlashIsBeyondTheBond();
        noExitIsBeforeItsTime();
        nothingForbiddenSucceeds();
        nothingDueIsBlocked();
    }

    function bondsAddUp() internal view {
        uint256 sum;
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            sum += registry.nodeOf(node).bond;
        }
        vm.assertEq(sum, registry.totalBonded(), "bonds add up");
        vm.assertEq(sum, chronicle.bonded(), "events tell the bonds' sum");
    }

    function eventsTellEveryNode() internal view {
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            vm.assertEq(stored.bond, chronicle.bondOf(node), "events tell each bond");
            vm.assertEq(stored.retiredAt, chronicle.retiredAtOf(node), "events tell each retirement");
            vm.assertEq(stored.key, chronicle.keyOf(node));
            vm.assertTrue(!stored.withdrawn || stored.bond == 0, "who left has no bond");
        }
    }

    /// The chronicle counts jobs up as they are listed and down as each is settled, found missing or freed.
    function inFlightIsWhatIsListedAndUnsettled() internal view {
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            vm.assertEq(stored.inFlight, chronicle.inFlightOf(node), "in flight is listed and unsettled");
            vm.assertLe(stored.inFlight, stored.capacity, "in flight is within capacity");
        }
        _never("a job is settled once");
        _never("only those who joined are listed");
        _never("only those who serve are drawn");
        _never("only the fit are listed");
    }

    function keysAreBoundOnce() internal view {
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            vm.assertTrue((stored.key == address(0)) == (stored.revoked || stored.withdrawn), "a key until revoked");
            if (stored.key != address(0)) vm.assertEq(registry.nodeByKey(stored.key), node, "a key has one node");
        }
        vm.assertEq(registry.nodeByKey(address(0)), 0, "no key, no node");
    }

    function slotsHoldTheirValidators() internal view {
        uint256 held;
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            if (stored.role != Role.Validator || stored.withdrawn) continue;
            vm.assertEq(registry.nodeAt(stored.slot), node, "a slot holds its validator until it left");
            vm.assertTrue(stored.slot < registry.slotCount(), "slots are counted");
            ++held;
        }
        uint256 taken;
        for (uint256 slot; slot < registry.slotCount(); ++slot) {
            if (registry.nodeAt(uint8(slot)) != 0) ++taken;
        }
        vm.assertEq(taken, held, "no slot is held by who left");
    }

    function theServingBitmapIsWhoServes() internal view {
        uint256 serving;
        for (uint256 slot; slot < registry.slotCount(); ++slot) {
            uint32 node = registry.nodeAt(uint8(slot));
            if (node != 0 && _serves(node)) serving |= uint256(1) << slot;
        }
        vm.assertEq(registry.eligible(), serving, "the serving bitmap is who serves");
    }

    /// From the node's own fields, not as the registry puts them together.
    function _serves(uint32 node) private view returns (bool) {
        Node memory stored = registry.nodeOf(node);
        bool bonded = stored.bond >= registry.requiredBond(stored.role, stored.capacity);
        bool serves = bonded && stored.retiredAt == 0 && !stored.revoked && block.timestamp >= stored.activeAt;
        vm.assertEq(registry.isListable(node), serves);
        return serves;
    }

    function noSlashIsBeyondTheBond() internal view {
        _never("no slash beyond the bond");
        _never("a slash is what is due");
        _never("fraud is slashed");
        _never("the absent pay");
        _never("only a decision makes jurors pay");
    }

    function noExitIsBeforeItsTime() internal view {
        _never("no exit before its time");
        _never("an exit takes the whole bond");
    }

    function nothingForbiddenSucceeds() internal view {
        bytes32 verb = parties.trespassed();
        vm.assertTrue(verb == 0, string(abi.encodePacked("forbidden and not refused as such: ", verb)));
    }

    /// Exits, settlement, and every tick that moves a round on.
    function nothingDueIsBlocked() internal view {
        bytes32 verb = parties.blocked();
        vm.assertTrue(verb == 0, string(abi.encodePacked("due and refused: ", verb)));
    }
}
