// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// A log as forge recorded it.
struct Log {
    bytes32[] topics;
    bytes data;
    address emitter;
}

/// Forge's cheatcodes used by these tests.
interface Vm {
    function warp(uint256 timestamp) external;
    function snapshotState() external returns (uint256 id);
    function revertToState(uint256 id) external returns (bool);
    function roll(uint256 number) external;
    function prank(address sender) external;
    function startPrank(address sender) external;
    function stopPrank() external;
    function assume(bool condition) external pure;
    function expectRevert() external;
    function expectRevert(bytes calldata error) external;
    function expectRevert(bytes4 error) external;
    function expectEmit(address emitter) external;
    function addr(uint256 key) external pure returns (address);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function recordLogs() external;
    function getRecordedLogs() external returns (Log[] memory);
    function setBlockhash(uint256 number, bytes32 hash) external;
    function chainId(uint256 id) external;
    function etch(address target, bytes calldata code) external;
    function getNonce(address account) external view returns (uint64);
    function computeCreateAddress(address deployer, uint256 nonce) external pure returns (address);
    function toString(uint256 value) external pure returns (string memory);
    function toString(address value) external pure returns (string memory);
    function toString(bytes32 value) external pure returns (string memory);
    function toString(bytes calldata value) external pure returns (string memory);
    function envOr(string calldata name, bool otherwise) external view returns (bool);
    function readFile(string calldata path) external view returns (string memory);
    function writeFile(string calldata path, string calldata content) external;
    function assertTrue(bool condition, string calldata error) external pure;
    function assertEq(uint256 left, uint256 right) external pure;
    function assertEq(uint256 left, uint256 right, string calldata error) external pure;
    function assertEq(address left, address right) external pure;
    function assertEq(bytes32 left, bytes32 right) external pure;
    function assertEq(string calldata left, string calldata right) external pure;
    function assertEq(bool left, bool right) external pure;
    function assertLe(uint256 left, uint256 right) external pure;
    function assertLe(uint256 left, uint256 right, string calldata error) external pure;
}

/// @title Base of every test
abstract contract Base {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    /// Folds a fuzzed number into [least, most].
    function bound(uint256 value, uint256 least, uint256 most) internal pure returns (uint256) {
        if (value >= least && value <= most) return value;
        uint256 span = most - least;
        return span == type(uint256).max ? value : least + value % (span + 1);
    }
}
