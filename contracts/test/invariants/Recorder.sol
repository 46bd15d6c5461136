// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// One event as forge recorded it.
struct Log {
    bytes32[] topics;
    bytes data;
    address emitter;
}

/// Excludes functions of a target; forge reads it.
struct FuzzSelector {
    address addr;
    bytes4[] selectors;
}

/// The cheatcodes that only the invariants use: events of a call, and the process's environment, the one place that outlasts
/// a run of a campaign.
interface Recorder {
    function recordLogs() external;
    function getRecordedLogs() external returns (Log[] memory);
    function setEnv(string calldata name, string calldata value) external;
    function envOr(string calldata name, uint256 otherwise) external view returns (uint256);
    function envOr(string calldata name, string calldata otherwise) external view returns (string memory);
    function writeFile(string calldata path, string calldata content) external;
    function toString(uint256 value) external pure returns (string memory);
    function split(string calldata input, string calldata delimiter) external pure returns (string[] memory);
}

Recorder constant recorder = Recorder(address(uint160(uint256(keccak256("hevm cheat code")))));
