// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Role} from "../src/interfaces/IRegistry.sol";
import {Scenario} from "./Scenario.sol";

/// @title A withdrawn validator, and the next holder of its slot
contract SlotReuseTest is Scenario {
    /// A tally later than the unbonding delay, when an absent juror has withdrawn.
    function test_latePenaltyForAWithdrawnJurorLeavesTheSlotsNewHolderInService() public {
        uint256 round = drawnRound(10);
        uint32 gone = jurorsOf(round)[0];
        address owner = registry.ownerOf(gone);
        vm.prank(owner);
        registry.retire(gone);
        pass(UNBONDING);
        vm.prank(owner);
        registry.withdraw(gone);
        uint8 slot = registry.nodeOf(gone).slot;
        uint32 newcomer = registerNode(Role.Validator, ownerNamed("newcomer", 0), 1);
        vm.assertEq(registry.nodeAt(slot), newcomer);
        pass(ACTIVATION);
        tallyDue(round);
        vm.assertTrue(registry.isListable(newcomer), "listable");
        vm.assertTrue((registry.eligible() >> slot) & 1 == 1, "still drawn on");
    }
}
