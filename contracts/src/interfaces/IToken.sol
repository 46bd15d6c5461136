// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Token: the test network's money
/// @notice An ERC-20 with permit (EIP-2612) and a capped faucet. Any ERC-20 that keeps its amounts can stand in.
interface IToken {
    event Dripped(address indexed to, uint256 amount, uint256 total);

    error FaucetExhausted(address to, uint256 taken, uint256 asked, uint256 cap);

    /// Mints `amount` wei to `to`, at most `FAUCET_CAP` an address over its life.
    function drip(address to, uint256 amount) external;
    function FAUCET_CAP() external view returns (uint256);
}
