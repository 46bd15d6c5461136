// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket} from "./interfaces/IMarket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {RoundsTerms} from "./interfaces/IRounds.sol";
import {Appealing} from "./rounds/Appealing.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";

/// @title Settlement: the second half of the code of `Rounds`
/// @notice One contract may hold 24,576 bytes; the code of a round's whole life is more. `Rounds` makes this contract when it is
/// deployed and runs its code as its own, by delegatecall to an address that can never change. Called directly it works on
/// storage of its own in which there is no round, and neither registry nor market listens to it.
contract Settlement is Appealing {
    constructor(IRegistry registry_, IMarket market_, RoundsTerms memory terms_)
        RoundsBase(registry_, market_, terms_)
    {}
}
