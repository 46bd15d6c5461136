// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {IAdmin} from "./interfaces/IAdmin.sol";

/// @title Admin
/// @notice Implements `IAdmin`.
contract Admin is IAdmin, AccessControlDefaultAdminRules {
    /// @notice Role that may pause and unpause new rounds: keccak256("PAUSER").
    bytes32 public constant PAUSER = keccak256("PAUSER");

    /// @inheritdoc IAdmin
    bool public paused;
    /// @inheritdoc IAdmin
    address public treasury;

    /// @param delay      seconds between the two steps of an admin transfer
    /// @param admin      first admin, and first pauser
    /// @param treasury_  receiver of swept slashes and forfeited appeal bonds
    constructor(uint48 delay, address admin, address treasury_) AccessControlDefaultAdminRules(delay, admin) {
        _grantRole(PAUSER, admin);
        _setTreasury(treasury_);
    }

    /// @inheritdoc IAdmin
    function pause() external onlyRole(PAUSER) {
        if (paused) revert AlreadyPaused();
        paused = true;
        emit Paused(msg.sender);
    }

    /// @inheritdoc IAdmin
    function unpause() external {
        if (!hasRole(PAUSER, msg.sender)) _checkRole(DEFAULT_ADMIN_ROLE);
        if (!paused) revert NotPaused();
        paused = false;
        emit Unpaused(msg.sender);
    }

    /// @inheritdoc IAdmin
    function setTreasury(address treasury_) external onlyRole(DEFAULT_ADMIN_ROLE) {
        _setTreasury(treasury_);
    }

    function _setTreasury(address treasury_) private {
        if (treasury_ == address(0)) revert NoTreasury();
        treasury = treasury_;
        emit TreasuryChanged(treasury_);
    }
}
