// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title ExactTransfer
/// @notice Takes tokens, and reverts if the token withholds a part of the amount.
library ExactTransfer {
    using SafeERC20 for IERC20;

    /// @notice The token delivered another amount than asked, for example because it charges a fee on transfer.
    /// @param asked     wei to transfer
    /// @param received  change of this contract's balance
    error AmountNotKept(uint256 asked, uint256 received);

    /// Moves `amount` from `from` to the calling contract.
    function take(IERC20 token, address from, uint256 amount) internal {
        uint256 before = token.balanceOf(address(this));
        // Every caller passes msg.sender as `from`, so that one account's approval cannot be used by another.
        // slither-disable-next-line arbitrary-send-erc20
        token.safeTransferFrom(from, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        if (received != amount) revert AmountNotKept(amount, received);
    }
}
