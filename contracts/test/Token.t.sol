// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IToken} from "../src/interfaces/IToken.sol";
import {Scenario} from "./Scenario.sol";

contract TokenTest is Scenario {
    function testFuzz_dripMintsUpToTheCap(uint256 first, uint256 second) public {
        uint256 cap = token.FAUCET_CAP();
        first = bound(first, 0, cap);
        second = bound(second, 0, cap - first);
        token.drip(stranger, first);
        vm.expectEmit(address(token));
        emit IToken.Dripped(stranger, second, first + second);
        token.drip(stranger, second);
        vm.assertEq(token.balanceOf(stranger), first + second);
    }

    function testFuzz_dripRefusesMoreThanTheCap(uint256 first, uint256 more) public {
        uint256 cap = token.FAUCET_CAP();
        first = bound(first, 0, cap);
        more = bound(more, cap - first + 1, type(uint256).max);
        token.drip(stranger, first);
        vm.expectRevert(abi.encodeWithSelector(IToken.FaucetExhausted.selector, stranger, first, more, cap));
        token.drip(stranger, more);
    }

    function test_permitLetsASpenderTakeTokens() public {
        (address owner, uint256 deadline) = (vm.addr(77), block.timestamp);
        bytes32 type_ = keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        bytes32 content = keccak256(abi.encode(type_, owner, stranger, 5, 0, deadline));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(77, typed("Assize Test Token", address(token), content));
        token.permit(owner, stranger, 5, deadline, v, r, s);
        vm.assertEq(token.allowance(owner, stranger), 5);
    }
}
