// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title ExactTransfer: takes tokens and refuses any that keep a part of them
library ExactTransfer {
    using SafeERC20 for IERC20;

    error AmountNotKept(uint256 asked, uint256 received);

    /// Moves `amount` from `from` to the calling contract.
    function take(IERC20 token, address from, uint256 amount) internal {
        uint256 before = token.balanceOf(address(this));
        // Every caller gives its own caller as `from`: nobody takes what another has approved.
        // slither-disable-next-line arbitrary-send-erc20
        token.safeTransferFrom(from, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        if (received != amount) revert AmountNotKept(amount, received);
    }
}
