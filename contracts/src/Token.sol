// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {IToken} from "./interfaces/IToken.sol";

/// @title Token
/// @notice Implements `IToken`.
contract Token is IToken, ERC20Permit {
    /// @inheritdoc IToken
    uint256 public constant FAUCET_CAP = 1_000_000 ether;

    /// Wei each address has received from the faucet.
    mapping(address => uint256) private _taken;

    constructor() ERC20("Assize Test Token", "ASZ") ERC20Permit("Assize Test Token") {}

    /// @inheritdoc IToken
    function drip(address to, uint256 amount) external {
        uint256 taken = _taken[to];
        if (amount > FAUCET_CAP - taken) revert FaucetExhausted(to, taken, amount, FAUCET_CAP);
        _taken[to] = taken + amount;
        emit Dripped(to, amount, taken + amount);
        _mint(to, amount);
    }
}
