// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Admin: who may pause, and where slashed bonds go
/// @notice The only mutable trust in a deployment; the other contracts cannot be changed. The admin appoints pausers and names
/// the treasury; its own office passes on in two steps with a delay between them (OpenZeppelin's
/// `AccessControlDefaultAdminRules`, which also gives `beginDefaultAdminTransfer`, `acceptDefaultAdminTransfer` and the roles'
/// verbs and events). A pauser can stop new rounds, and let them go on: never exits, settlement or withdrawals.
interface IAdmin {
    event Paused(address indexed pauser);
    event Unpaused(address indexed pauser);
    event TreasuryChanged(address indexed treasury);

    error AlreadyPaused();
    error NotPaused();
    error NoTreasury();

    /// By a pauser: no new rounds.
    function pause() external;
    /// By a pauser or the admin: new rounds again.
    function unpause() external;
    /// By the admin.
    function setTreasury(address treasury) external;

    function paused() external view returns (bool);
    function treasury() external view returns (address);
}
