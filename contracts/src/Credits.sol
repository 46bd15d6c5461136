// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {ICredits} from "./interfaces/ICredits.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ExactTransfer} from "./libraries/ExactTransfer.sol";
import {Payments} from "./libraries/Payments.sol";
import {Permits} from "./libraries/Permits.sol";

/// @title Credits
/// @notice Implements `ICredits`.
contract Credits is ICredits, Multicall {
    using SafeERC20 for IERC20;
    using ExactTransfer for IERC20;
    using Permits for IERC20;

    /// @inheritdoc ICredits
    IERC20 public immutable token;
    /// @inheritdoc ICredits
    address public immutable market;
    /// @inheritdoc ICredits
    IRegistry public immutable registry;

    /// @inheritdoc ICredits
    mapping(address => uint256) public balanceOf;
    /// @inheritdoc ICredits
    uint256 public totalLocked;
    /// @inheritdoc ICredits
    uint256 public totalSupply;

    /// @param token_     ERC-20 that backs credits
    /// @param market_    the only caller of `lock`, `unlock`, `earn` and `earnAll`
    /// @param registry_  the only caller of `grant`
    constructor(IERC20 token_, address market_, IRegistry registry_) {
        token = token_;
        market = market_;
        registry = registry_;
    }

    modifier onlyMarket() {
        if (msg.sender != market) revert NotMarket(msg.sender);
        _;
    }

    /// @inheritdoc ICredits
    function buy(uint256 amount) external {
        if (amount == 0) revert ZeroAmount();
        balanceOf[msg.sender] += amount;
        totalSupply += amount;
        emit CreditsBought(msg.sender, amount);
        token.take(msg.sender, amount);
    }

    /// @inheritdoc ICredits
    function redeem(uint256 amount) external {
        redeemTo(msg.sender, amount);
    }

    /// @inheritdoc ICredits
    function redeemTo(address to, uint256 amount) public {
        if (to == address(0)) revert NoReceiver();
        if (amount == 0) revert ZeroAmount();
        _spend(msg.sender, amount);
        totalSupply -= amount;
        emit CreditsRedeemed(msg.sender, to, amount);
        token.safeTransfer(to, amount);
    }

    /// @inheritdoc ICredits
    function selfPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external {
        token.spend(amount, deadline, v, r, s);
    }

    /// @inheritdoc ICredits
    function lock(address owner, uint256 run, uint256 amount) external onlyMarket {
        _spend(owner, amount);
        totalLocked += amount;
        emit CreditsLocked(owner, run, amount);
    }

    /// @inheritdoc ICredits
    function unlock(address owner, uint256 run, uint256 amount) external onlyMarket {
        totalLocked -= amount;
        balanceOf[owner] += amount;
        emit CreditsUnlocked(owner, run, amount);
    }

    /// @inheritdoc ICredits
    function earn(address owner, uint256 run, uint256 round, uint32 node, uint256 amount) external onlyMarket {
        totalLocked -= amount;
        balanceOf[owner] += amount;
        emit CreditsEarned(owner, run, round, node, amount);
    }

    /// @inheritdoc ICredits
    function earnAll(uint256 run, uint256 round, bytes calldata payments) external onlyMarket returns (uint256 total) {
        uint256 count = payments.length / Payments.PAYMENT_BYTES;
        for (uint256 i; i < count; ++i) {
            (address owner, uint32 node, uint256 amount) = Payments.read(payments, i);
            if (amount == 0) continue;
            total += amount;
            balanceOf[owner] += amount;
            emit CreditsEarned(owner, run, round, node, amount);
        }
        totalLocked -= total;
    }

    /// @inheritdoc ICredits
    function grant(address owner, uint256 round, uint256 amount) external {
        if (msg.sender != address(registry)) revert NotRegistry(msg.sender);
        balanceOf[owner] += amount;
        totalSupply += amount;
        uint256 held = token.balanceOf(address(this));
        if (held < totalSupply) revert NotBacked(held, totalSupply);
        emit CreditsGranted(owner, round, amount);
    }

    function _spend(address owner, uint256 amount) private {
        uint256 have = balanceOf[owner];
        if (have < amount) revert CreditTooSmall(owner, have, amount);
        unchecked {
            balanceOf[owner] = have - amount;
        }
    }
}
