// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {Errors} from "@openzeppelin/contracts/utils/Errors.sol";
import {IMarket} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {RoundsTerms} from "./interfaces/IRounds.sol";
import {Judging} from "./rounds/Judging.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";
import {Submitting} from "./rounds/Submitting.sol";
import {Settlement} from "./Settlement.sol";

/// @title Rounds
/// @notice Implements `IRounds`, half of it by way of `Settlement`.
/// @dev The code up to the verdict is here; `Settlement` holds the rest and runs by delegatecall.
contract Rounds is Submitting, Judging {
    Settlement private immutable SETTLEMENT;

    /// @dev Deploy last: registry and market must already name this address. Creates `Settlement`.
    /// @param registry_  registry; its `rounds()` must be this contract
    /// @param market_    market; its `rounds()` must be this contract and its `registry()` must be `registry_`
    /// @param terms_     protocol-wide penalties, fixed for good
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_)
        RoundsBase(registry_, market_, terms_)
    {
        // The others were given this address before it existed.
        bool named = registry_.rounds() == address(this) && market_.rounds() == address(this);
        if (!named || address(market_.registry()) != address(registry_)) revert WrongDeployment();
        SETTLEMENT = new Settlement(registry_, market_, terms_);
    }

    /// @dev Passes a call that has no function here to `Settlement`: returns what it returns and reverts as it reverts.
    /// `conclude` is for this contract alone: anyone else could end an appeal that was never judged.
    fallback(bytes calldata call) external returns (bytes memory) {
        if (msg.sig == SETTLEMENT.conclude.selector) revert Errors.FailedCall();
        return _settlement(call);
    }

    /// @inheritdoc Judging
    function _concludeAppeal(uint256 appealed, bool decided) internal override {
        _settlement(abi.encodeCall(SETTLEMENT.conclude, (appealed, decided)));
    }

    function _settlement(bytes memory call) private returns (bytes memory) {
        return Address.functionDelegateCall(address(SETTLEMENT), call);
    }
}
