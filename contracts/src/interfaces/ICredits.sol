// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IRegistry} from "./IRegistry.sol";

/// @title Credits: what each owner has earned
/// @notice One credit is one wei of the token held here. Credits are bought, locked in a run's escrow, earned by verified
/// work or by judging, spent on one's own runs, or redeemed; they move in no other way, and are paid out only to whoever asks
/// for its own. Only `Market` locks, unlocks and pays; only `Registry` grants, with slashed tokens that it hands over.
/// `multicall` (OpenZeppelin) joins calls into one transaction: `selfPermit` and `buy` together need no approval before.
/// At every moment token.balanceOf(Credits) >= totalSupply() = sum of balanceOf + totalLocked().
interface ICredits {
    event CreditsBought(address indexed owner, uint256 amount);
    event CreditsRedeemed(address indexed owner, uint256 amount);
    event CreditsLocked(address indexed owner, uint256 indexed run, uint256 amount);
    event CreditsUnlocked(address indexed owner, uint256 indexed run, uint256 amount);
    /// Credits leave a run's escrow for the owner of `node`: its work or its vote in `round`.
    event CreditsEarned(address indexed owner, uint256 indexed run, uint256 indexed round, uint32 node, uint256 amount);

    /// Slashed tokens became credits of the one who had a verdict in `round` overturned.
    event CreditsGranted(address indexed owner, uint256 indexed round, uint256 amount);

    error NotMarket(address caller);
    error NotRegistry(address caller);
    error NotBacked(uint256 held, uint256 need);
    error ZeroAmount();
    error CreditTooSmall(address owner, uint256 have, uint256 need);

    /// Turns `amount` wei of the caller's tokens into credits.
    function buy(uint256 amount) external;
    /// Turns `amount` of the caller's credits back into tokens.
    function redeem(uint256 amount) external;

    /// Spends the caller's EIP-2612 permit for this contract. A permit somebody else has spent already is no error.
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// Market only: an owner's free credits become a run's escrow, or a deposit on one of its rounds.
    function lock(address owner, uint256 run, uint256 amount) external;
    /// Market only: credits of a run become free credits of `owner`.
    function unlock(address owner, uint256 run, uint256 amount) external;
    /// Market only: credits of a run are paid for work or for judging.
    function earn(address owner, uint256 run, uint256 round, uint32 node, uint256 amount) external;
    /// Market only: as `earn` for each payment; one of nothing is passed over. Returns what they are in all.
    /// @param payments  packed, 40 bytes each: address owner, uint32 node, uint128 amount (big-endian)
    function earnAll(uint256 run, uint256 round, bytes calldata payments) external returns (uint256 total);
    /// Registry only, once the tokens are here: new credits of `owner`.
    function grant(address owner, uint256 round, uint256 amount) external;

    function balanceOf(address owner) external view returns (uint256);
    function totalLocked() external view returns (uint256);
    function totalSupply() external view returns (uint256);
    function token() external view returns (IERC20);
    function market() external view returns (address);
    function registry() external view returns (IRegistry);
}
