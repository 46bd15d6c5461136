// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

/// @title Permits: an allowance by signature
library Permits {
    /// Spends the caller's permit for this contract. One that was spent before by somebody else is passed over: whoever copies
    /// it out of the mempool gives the very allowance that is asked for.
    function spend(IERC20 token, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) internal {
        try IERC20Permit(address(token)).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
    }
}
