// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {RoundsTerms} from "./interfaces/IRounds.sol";
import {Appealing} from "./rounds/Appealing.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";
import {Viewing} from "./rounds/Viewing.sol";

/// @title Settlement
/// @notice The second half of the code of `Rounds`, split off because a contract is limited to 24,576 bytes (EIP-170).
/// `Rounds` creates this contract in its constructor and runs its code by delegatecall, for every call that it has no
/// function for, at an address that cannot change.
/// @dev A direct call uses this contract's own storage, which holds no rounds; registry and market reject it as a
/// caller.
contract Settlement is Appealing, Viewing {
    /// @dev The arguments of `Rounds`, so that immutables agree.
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_)
        RoundsBase(registry_, market_, terms_)
    {}
}
