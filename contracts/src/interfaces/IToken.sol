// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title IToken
/// @notice The test network's token: an ERC-20 with permit (EIP-2612) and a capped faucet. A deployment may use any
/// other ERC-20 that transfers exact amounts and does not call back.
/// @dev Name "Assize Test Token", symbol "ASZ", 18 decimals.
/// @dev EIP-712 domain of permits: name "Assize Test Token", version "1", chain id, this contract.
/// @dev Constructor: no arguments. The initial supply is zero.
interface IToken {
    /// @notice The faucet minted tokens.
    /// @param to      receiver
    /// @param amount  wei minted
    /// @param total   wei the receiver has got from the faucet so far
    event Dripped(address indexed to, uint256 amount, uint256 total);

    /// @notice The amount would exceed the receiver's faucet cap.
    /// @param to     receiver
    /// @param taken  wei it has got from the faucet so far
    /// @param asked  wei asked for
    /// @param cap    `FAUCET_CAP`
    error FaucetExhausted(address to, uint256 taken, uint256 asked, uint256 cap);

    /// @notice Mints tokens. Anyone may call it.
    /// @param to      receiver
    /// @param amount  wei to mint; at most `FAUCET_CAP` for each receiver in total
    function drip(address to, uint256 amount) external;

    /// @notice Maximum wei one address can get from the faucet: 1,000,000 tokens.
    function FAUCET_CAP() external view returns (uint256);
}
