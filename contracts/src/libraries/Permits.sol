// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

/// @title Permits
/// @notice Allowances by signature (EIP-2612).
library Permits {
    /// Uses the caller's permit for this contract. A failing permit is ignored: if it was used before, for example by a
    /// transaction that copied it from the mempool, the allowance is already there; otherwise the transfer that follows
    /// fails.
    function spend(IERC20 token, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) internal {
        try IERC20Permit(address(token)).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
    }
}
