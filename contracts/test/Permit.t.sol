// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {IRegistry, Node, Role} from "../src/interfaces/IRegistry.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {Scenario} from "./Scenario.sol";

/// @title Buying and bonding without an approval before
contract PermitTest is Scenario {
    uint256 internal constant WALLET = 0xA11CE;
    uint256 internal constant KEY = 0xBEEF;

    address internal owner = vm.addr(WALLET);

    function _permit(address spender, uint256 amount) private view returns (uint8 v, bytes32 r, bytes32 s) {
        bytes32 type_ = keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        bytes32 content = keccak256(abi.encode(type_, owner, spender, amount, token.nonces(owner), block.timestamp));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), content));
        return vm.sign(WALLET, digest);
    }

    function _buying(uint256 amount) private view returns (bytes[] memory calls) {
        (uint8 v, bytes32 r, bytes32 s) = _permit(address(credits), amount);
        calls = new bytes[](2);
        calls[0] = abi.encodeCall(ICredits.selfPermit, (amount, block.timestamp, v, r, s));
        calls[1] = abi.encodeCall(ICredits.buy, (amount));
    }

    function testFuzz_creditsAreBoughtInOneTransaction(uint256 amount) public {
        amount = bound(amount, 1, token.FAUCET_CAP());
        token.drip(owner, amount);
        bytes[] memory calls = _buying(amount);
        vm.prank(owner);
        credits.multicall(calls);
        vm.assertEq(credits.balanceOf(owner), amount);
        vm.assertEq(token.balanceOf(owner), 0);
        vm.assertEq(token.allowance(owner, address(credits)), 0);
    }

    function test_nodeIsRegisteredInOneTransaction() public {
        uint256 bond = 3 * BOND_PER_JOB;
        token.drip(owner, bond);
        (uint8 v, bytes32 r, bytes32 s) = _permit(address(registry), bond);
        bytes memory signature = binding(owner, KEY, Role.Worker, 3);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(IRegistry.selfPermit, (bond, block.timestamp, v, r, s));
        calls[1] = abi.encodeCall(IRegistry.register, (Role.Worker, vm.addr(KEY), 3, block.timestamp, signature));
        vm.prank(owner);
        bytes[] memory answers = registry.multicall(calls);
        Node memory node = registry.nodeOf(abi.decode(answers[1], (uint32)));
        vm.assertEq(node.owner, owner);
        vm.assertEq(node.bond, bond);
    }

    /// A permit copied from the mempool and used first leaves the allowance, so that the purchase succeeds.
    function test_permitSpentByAnotherBlocksNothing() public {
        token.drip(owner, 1000);
        bytes[] memory calls = _buying(1000);
        (uint8 v, bytes32 r, bytes32 s) = _permit(address(credits), 1000);
        vm.prank(stranger);
        token.permit(owner, address(credits), 1000, block.timestamp, v, r, s);
        vm.prank(owner);
        credits.multicall(calls);
        vm.assertEq(credits.balanceOf(owner), 1000);
    }

    /// A permit for another spender gives no allowance here.
    function test_permitOfAnotherOwnerBuysNothing() public {
        token.drip(owner, 1000);
        token.drip(stranger, 1000);
        bytes[] memory calls = _buying(1000);
        vm.expectRevert(
            abi.encodeWithSelector(IERC20Errors.ERC20InsufficientAllowance.selector, address(credits), 0, 1000)
        );
        vm.prank(stranger);
        credits.multicall(calls);
        vm.assertEq(token.balanceOf(owner), 1000);
    }

    function test_oneCallThatFailsUndoesThemAll() public {
        token.drip(owner, 1000);
        bytes[] memory calls = _buying(1000);
        calls[1] = abi.encodeCall(ICredits.buy, (0));
        vm.expectRevert(ICredits.ZeroAmount.selector);
        vm.prank(owner);
        credits.multicall(calls);
        vm.assertEq(token.allowance(owner, address(credits)), 0);
    }
}
