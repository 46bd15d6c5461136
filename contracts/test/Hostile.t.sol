// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Base} from "./Base.sol";
import {FuzzSelector, recorder} from "./invariants/Recorder.sol";
import {Siege} from "./invariants/Siege.sol";

/// @title Nobody honest pays for what another does
/// @notice Holds in every history in which hostile seats stay below the majority of each committee. The others are told
/// apart by `captured`.
contract HostileTest is Base {
    uint256 private constant ENOUGH = 200;
    bytes32[17] private REACHED = [
        bytes32("round"),
        "settled",
        "fraud",
        "unavailable",
        "hostile seat",
        "appeal",
        "hidden from a trial",
        "shown to a trial first",
        "tried",
        "checkpoint",
        "hostile run",
        "contested",
        "matched",
        "honest displaced",
        "trap set",
        "trap opened",
        "trap forfeited"
    ];
    Siege private contest;

    function setUp() public {
        contest = new Siege();
        contest.setUp();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(contest);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targeted) {
        targeted = new FuzzSelector[](1);
        bytes4[] memory selectors = new bytes4[](15);
        selectors[0] = contest.openHostileRun.selector;
        selectors[1] = contest.plan.selector;
        selectors[2] = contest.publish.selector;
        selectors[3] = contest.shuffle.selector;
        selectors[4] = contest.desert.selector;
        // Named twice and thrice, as they are what histories are made of.
        selectors[5] = selectors[6] = contest.openRound.selector;
        selectors[7] = selectors[8] = contest.appeal.selector;
        selectors[9] = selectors[10] = contest.wait.selector;
        selectors[11] = contest.contestSlot.selector;
        selectors[12] = contest.displace.selector;
        selectors[13] = contest.setTraps.selector;
        selectors[14] = contest.forfeitTraps.selector;
        targeted[0] = FuzzSelector(address(contest), selectors);
    }

    function invariant_nobodyHonestPays() public view {
        if (contest.captured()) return;
        check();
    }

    function afterInvariant() public {
        contest.endEverything();
        count();
        if (contest.captured()) return;
        check();
        for (uint32 node = 1; node <= contest.nodes(); ++node) {
            if (contest.hostile(node) || !contest.isWorker(node)) continue;
            vm.assertEq(contest.earned(node), contest.duePay(node), "honest work is paid, all of it");
        }
    }

    function check() private view {
        vm.assertTrue(contest.broken() == 0, string(abi.encodePacked(contest.broken())));
        for (uint32 node = 1; node <= contest.nodes(); ++node) {
            if (contest.hostile(node)) continue;
            vm.assertEq(contest.bondNow(node), contest.bondOf(node), "an honest bond is whole");
        }
        vm.assertLe(contest.workPaid(), contest.workDue(), "pay is for good work");
        uint256 most = contest.start() + contest.workPaid() + contest.feesPaid();
        vm.assertLe(contest.wealth(), most, "hostile wealth grows by accepted work and fees alone");
    }

    /// Sums what the histories reached, in the environment of the process, as the chain is reset between runs. After
    /// `ENOUGH` histories, a state that none reached fails the suite: it would prove nothing about it.
    function count() private {
        string memory lines = "";
        uint256 histories = add("histories", 1);
        add("captured", contest.captured() ? 1 : 0);
        for (uint256 i; i < REACHED.length; ++i) {
            uint256 sum = add(REACHED[i], contest.captured() ? 0 : contest.seen(REACHED[i]));
            if (histories >= ENOUGH) vm.assertTrue(sum != 0, string(abi.encodePacked("never reached: ", REACHED[i])));
            lines = string.concat(lines, string(abi.encodePacked(REACHED[i])), "\t", vm.toString(sum), "\n");
        }
        string memory path = recorder.envOr("ASSIZE_HOSTILE", string(""));
        if (bytes(path).length == 0) return;
        lines = string.concat(
            "histories\t", vm.toString(histories), "\ncaptured\t", vm.toString(add("captured", 0)), "\n", lines
        );
        recorder.writeFile(path, lines);
    }

    function add(bytes32 name, uint256 more) private returns (uint256 sum) {
        string memory key = string.concat("ASSIZE_HOSTILE_", vm.toString(name));
        sum = recorder.envOr(key, uint256(0)) + more;
        recorder.setEnv(key, vm.toString(sum));
    }
}
