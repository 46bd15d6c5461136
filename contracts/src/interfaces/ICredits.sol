// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IRegistry} from "./IRegistry.sol";

/// @title ICredits
/// @notice Balances of credits. One credit is backed by one wei of the token held here.
/// @notice Credits are bought, locked in a run's escrow, earned by verified work or by judging, and redeemed. They
/// cannot be transferred otherwise. Tokens are paid out only where an owner that redeems its own credits sends them.
/// @dev Invariant: token.balanceOf(this) >= totalSupply() = sum of balanceOf + totalLocked().
/// @dev Also an OpenZeppelin `Multicall`: `multicall` joins `selfPermit` and `buy` in one transaction, without a prior
/// approval.
/// @dev Constructor: IERC20 token, address market, IRegistry registry.
interface ICredits {
    /// @notice Tokens were turned into credits.
    /// @param owner   buyer
    /// @param amount  credits, equal to the wei taken
    event CreditsBought(address indexed owner, uint256 amount);

    /// @notice Credits were turned back into tokens.
    /// @param owner   redeemer, account debited
    /// @param to      receiver of the tokens
    /// @param amount  credits, equal to the wei paid
    event CreditsRedeemed(address indexed owner, address indexed to, uint256 amount);

    /// @notice Free credits were locked in a run: its funding, or the deposit of an appeal.
    /// @param owner   account debited
    /// @param run     id of the run
    /// @param amount  credits
    event CreditsLocked(address indexed owner, uint256 indexed run, uint256 amount);

    /// @notice Credits locked in a run became free: a refund, or what was paid out of an appeal's deposit.
    /// @param owner   account credited
    /// @param run     id of the run
    /// @param amount  credits
    event CreditsUnlocked(address indexed owner, uint256 indexed run, uint256 amount);

    /// @notice A node's owner was paid from a run for work or for judging.
    /// @param owner   the node's owner, account credited
    /// @param run     id of the run
    /// @param round   number of the round; jurors of an appeal are paid under the appeal's number
    /// @param node    id of the node
    /// @param amount  credits, not zero
    event CreditsEarned(address indexed owner, uint256 indexed run, uint256 indexed round, uint32 node, uint256 amount);

    /// @notice Slashed tokens became credits of an appellant that had a verdict overturned.
    /// @param owner   the appellant, account credited
    /// @param round   number of the round appealed against
    /// @param amount  credits, equal to the wei received from the registry
    event CreditsGranted(address indexed owner, uint256 indexed round, uint256 amount);

    /// @notice The function is for the market only.
    /// @param caller  the caller
    error NotMarket(address caller);

    /// @notice The function is for the registry only.
    /// @param caller  the caller
    error NotRegistry(address caller);

    /// @notice Granted credits would exceed the tokens held here.
    /// @param held  token balance
    /// @param need  total supply including the grant
    error NotBacked(uint256 held, uint256 need);

    /// @notice The amount is zero.
    error ZeroAmount();

    /// @notice Tokens would be paid to the zero address.
    error NoReceiver();

    /// @notice The account has fewer free credits than needed.
    /// @param owner  account to debit
    /// @param have   its free credits
    /// @param need   credits needed
    error CreditTooSmall(address owner, uint256 have, uint256 need);

    /// @notice Turns the caller's tokens into credits. Needs an allowance for this contract.
    /// @param amount  wei, not zero
    function buy(uint256 amount) external;

    /// @notice Turns the caller's free credits back into tokens of its own.
    /// @param amount  credits, not zero
    function redeem(uint256 amount) external;

    /// @notice Turns the caller's free credits back into tokens of another account, such as one whose key is kept cold.
    /// @param to      receiver of the tokens, not the zero address
    /// @param amount  credits, not zero
    function redeemTo(address to, uint256 amount) external;

    /// @notice Uses the caller's EIP-2612 permit for this contract.
    /// @dev A permit that fails is ignored, as it may have been used by a transaction that copied it.
    /// @param amount    allowance in wei
    /// @param deadline  timestamp in seconds
    /// @param v         27 or 28
    /// @param r         first word of the signature
    /// @param s         second word of the signature
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Locks free credits in a run, as escrow or as an appeal's deposit. Market only.
    /// @param owner   account to debit
    /// @param run     id of the run
    /// @param amount  credits
    function lock(address owner, uint256 run, uint256 amount) external;

    /// @notice Frees credits locked in a run. Market only.
    /// @param owner   account to credit
    /// @param run     id of the run
    /// @param amount  credits
    function unlock(address owner, uint256 run, uint256 amount) external;

    /// @notice Pays credits locked in a run to a node's owner. Market only.
    /// @param owner   account to credit
    /// @param run     id of the run
    /// @param round   number of the round
    /// @param node    id of the node
    /// @param amount  credits
    function earn(address owner, uint256 run, uint256 round, uint32 node, uint256 amount) external;

    /// @notice Pays many nodes' owners, as `earn` does. Market only.
    /// @dev Payments of zero are skipped, without an event. A trailing fragment of `payments` is ignored.
    /// @param run       id of the run
    /// @param round     number of the round
    /// @param payments  40 bytes for each payment, big-endian: address owner, uint32 node, uint128 amount
    /// @return total  sum of the amounts
    function earnAll(uint256 run, uint256 round, bytes calldata payments) external returns (uint256 total);

    /// @notice Creates credits for tokens the registry has just transferred here. Registry only.
    /// @param owner   account to credit
    /// @param round   number of the round appealed against
    /// @param amount  credits
    function grant(address owner, uint256 round, uint256 amount) external;

    /// @notice Free credits of an account.
    function balanceOf(address owner) external view returns (uint256);

    /// @notice Credits locked in all runs.
    function totalLocked() external view returns (uint256);

    /// @notice All credits, free and locked.
    function totalSupply() external view returns (uint256);

    /// @notice The token that backs credits.
    function token() external view returns (IERC20);

    /// @notice The only caller of `lock`, `unlock`, `earn` and `earnAll`.
    function market() external view returns (address);

    /// @notice The only caller of `grant`.
    function registry() external view returns (IRegistry);
}
