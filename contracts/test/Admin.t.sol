// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {
    IAccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/IAccessControlDefaultAdminRules.sol";
import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {Admin} from "../src/Admin.sol";
import {Consumption} from "../src/interfaces/IMarket.sol";
import {IAdmin} from "../src/interfaces/IAdmin.sol";
import {Cause, Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

contract AdminTest is Appeals {
    address internal heir = address(0x41E);

    function _pause() private {
        vm.prank(governor);
        admin.pause();
    }

    function _refuseWithout(bytes32 role, address caller) private {
        vm.expectRevert(abi.encodeWithSelector(IAccessControl.AccessControlUnauthorizedAccount.selector, caller, role));
        vm.prank(caller);
    }

    function test_pauserStopsNewRoundsAndLetsThemGoOn() public {
        vm.expectEmit(address(admin));
        emit IAdmin.Paused(governor);
        _pause();
        bytes memory assignments = fourEach();
        vm.expectRevert(IRoundsFacts.NewRoundsPaused.selector);
        vm.prank(coordinator);
        rounds.open(run, 1, 0, assignments);
        vm.expectRevert(IAdmin.AlreadyPaused.selector);
        _pause();
        vm.expectEmit(address(admin));
        emit IAdmin.Unpaused(governor);
        vm.prank(governor);
        admin.unpause();
        openRound(fourEach());
        vm.expectRevert(IAdmin.NotPaused.selector);
        vm.prank(governor);
        admin.unpause();
    }

    /// A pause holds no funds: work already begun is judged, appealed, settled, redeemed and withdrawn.
    function test_pauseStopsNothingElse() public {
        uint256 round = openRound(fourEach());
        _pause();
        mine(1);
        rounds.submit(round, fourEach(), packed(bothSubmissions(round, UNITS)));
        closeDue(round, fourEach());
        mine(1);
        rounds.draw(round);
        vote(round, all(3, Choice.Fraud));
        tallyDue(round);
        tried(appealed(round), Choice.Accept);
        settleAll(round);
        requireEnded(round);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, 255);
        vm.prank(trainer);
        market.publish(run, 1, keccak256("manifest 1"), consumed);
        registry.sweep();
        _exit(workers[0]);
        uint32 late = registerNode(Role.Worker, ownerNamed("late", 0), 1);
        joinRun(run, late);
        vm.startPrank(requester);
        market.close(run);
        market.refund(run, market.runOf(run).escrow);
        credits.redeem(credits.balanceOf(requester));
        vm.stopPrank();
    }

    function _exit(uint32 node) private {
        address owner = registry.ownerOf(node);
        vm.startPrank(owner);
        credits.redeem(credits.balanceOf(owner));
        registry.retire(node);
        pass(UNBONDING);
        registry.withdraw(node);
        vm.stopPrank();
        vm.assertEq(token.balanceOf(owner), 8 * BOND_PER_JOB + 4 * UNITS * PRICE);
    }

    function test_roundNobodyMovesEndsUnderAPauseToo() public {
        uint256 round = openRound(fourEach());
        _pause();
        pass(MAX_ROUND + 1);
        rounds.expire(round);
        requireState(round, State.Void);
        rounds.free(round, fourEach());
    }

    function test_strangerNeitherPausesNorUnpausesNorNamesATreasury() public {
        bytes32 pauser = admin.PAUSER();
        _refuseWithout(pauser, stranger);
        admin.pause();
        _pause();
        _refuseWithout(bytes32(0), stranger);
        admin.unpause();
        _refuseWithout(bytes32(0), stranger);
        admin.setTreasury(stranger);
    }

    /// A pauser that would not let go can be overruled, and dismissed, by the admin.
    function test_adminAppointsAndDismissesPausers() public {
        bytes32 pauser = admin.PAUSER();
        vm.startPrank(governor);
        admin.grantRole(pauser, stranger);
        admin.revokeRole(pauser, governor);
        vm.stopPrank();
        vm.prank(stranger);
        admin.pause();
        vm.prank(governor);
        admin.unpause();
        vm.prank(governor);
        admin.revokeRole(pauser, stranger);
        _refuseWithout(pauser, stranger);
        admin.pause();
    }

    function test_pauserUnpausesWithoutBeingAdmin() public {
        bytes32 pauser = admin.PAUSER();
        vm.prank(governor);
        admin.grantRole(pauser, stranger);
        _pause();
        vm.prank(stranger);
        admin.unpause();
        vm.assertEq(admin.paused(), false);
    }

    function testFuzz_officePassesInTwoStepsAfterTheDelay(uint256 early) public {
        early = bound(early, 1, ADMIN_DELAY);
        uint48 at = uint48(block.timestamp) + ADMIN_DELAY;
        vm.prank(governor);
        admin.beginDefaultAdminTransfer(heir);
        vm.assertEq(admin.defaultAdmin(), governor);
        vm.warp(at - early + 1);
        vm.expectRevert(
            abi.encodeWithSelector(IAccessControlDefaultAdminRules.AccessControlEnforcedDefaultAdminDelay.selector, at)
        );
        vm.prank(heir);
        admin.acceptDefaultAdminTransfer();
        vm.warp(at + 1);
        vm.expectRevert(
            abi.encodeWithSelector(IAccessControlDefaultAdminRules.AccessControlInvalidDefaultAdmin.selector, stranger)
        );
        vm.prank(stranger);
        admin.acceptDefaultAdminTransfer();
        vm.prank(heir);
        admin.acceptDefaultAdminTransfer();
        vm.assertEq(admin.defaultAdmin(), heir);
        _refuseWithout(bytes32(0), governor);
        admin.setTreasury(governor);
    }

    /// The office is never granted beside the two steps.
    function test_officeIsNotGrantedDirectly() public {
        vm.expectRevert(IAccessControlDefaultAdminRules.AccessControlEnforcedDefaultAdminRules.selector);
        vm.prank(governor);
        admin.grantRole(bytes32(0), heir);
    }

    function test_adminNamesTheTreasury() public {
        vm.prank(address(rounds));
        registry.slash(workers[0], 1, Cause.Fraud, 5);
        vm.expectEmit(address(admin));
        emit IAdmin.TreasuryChanged(heir);
        vm.prank(governor);
        admin.setTreasury(heir);
        vm.assertEq(admin.treasury(), heir);
        registry.sweep();
        vm.assertEq(token.balanceOf(heir), 5);
        vm.expectRevert(IAdmin.NoTreasury.selector);
        vm.prank(governor);
        admin.setTreasury(address(0));
        vm.expectRevert(IAdmin.NoTreasury.selector);
        new Admin(ADMIN_DELAY, governor, address(0));
    }
}
