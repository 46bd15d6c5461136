// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title IAdmin
/// @notice Who may pause new rounds, and where slashed bonds go: the only part of a deployment that can be changed.
/// @dev Also an OpenZeppelin `AccessControlDefaultAdminRules`, whose functions and events are not repeated here. The
/// admin is the holder of DEFAULT_ADMIN_ROLE (0x00). It changes in two steps with a delay between them
/// (`beginDefaultAdminTransfer`, `acceptDefaultAdminTransfer`).
/// @dev Pausers hold the role PAUSER = keccak256("PAUSER"), which the admin grants and revokes.
/// @dev Constructor: uint48 delay in seconds, address admin (also the first pauser), address treasury.
interface IAdmin {
    /// @notice New rounds are refused from now on.
    /// @param pauser  the caller
    event Paused(address indexed pauser);

    /// @notice New rounds are accepted again.
    /// @param pauser  the caller: a pauser or the admin
    event Unpaused(address indexed pauser);

    /// @notice The treasury was set. Also emitted by the constructor.
    /// @param treasury  the new treasury
    event TreasuryChanged(address indexed treasury);

    /// @notice `pause` while paused.
    error AlreadyPaused();

    /// @notice `unpause` while not paused.
    error NotPaused();

    /// @notice The zero address given as treasury.
    error NoTreasury();

    /// @notice Stops new rounds. Pausers only.
    /// @dev Submissions, verdicts, appeals, settlement, withdrawals and redemptions are not affected.
    function pause() external;

    /// @notice Allows new rounds again. Pausers and the admin only.
    function unpause() external;

    /// @notice Sets the receiver of swept slashes and forfeited appeal bonds. Admin only.
    /// @param treasury  not zero; appeal bonds arrive as its credits, so it must be able to call `Credits.redeem`
    function setTreasury(address treasury) external;

    /// @notice True while new rounds are refused.
    function paused() external view returns (bool);

    /// @notice The receiver of swept slashes and forfeited appeal bonds.
    function treasury() external view returns (address);
}
