// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Admin} from "../../src/Admin.sol";
import {Credits} from "../../src/Credits.sol";
import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {Token} from "../../src/Token.sol";
import {IRounds} from "../../src/interfaces/IRounds.sol";
import {Base} from "../Base.sol";
import {Chronicle} from "./Chronicle.sol";
import {Parties} from "./Parties.sol";

/// @title Checks: base of every group of checks
abstract contract Checks is Base {
    Parties internal parties;
    Chronicle internal chronicle;
    Token internal token;
    Admin internal admin;
    Registry internal registry;
    Credits internal credits;
    Market internal market;
    IRounds internal rounds;

    function setUp() public {
        parties = new Parties();
        parties.setUp();
        chronicle = parties.chronicle();
        (address token_, address admin_, address registry_, address credits_, address market_, address rounds_) =
            parties.contracts();
        token = Token(token_);
        admin = Admin(admin_);
        registry = Registry(registry_);
        credits = Credits(credits_);
        market = Market(market_);
        rounds = IRounds(rounds_);
    }

    /// A rule that the events broke nowhere.
    function _never(bytes32 rule) internal view {
        vm.assertEq(chronicle.broken(rule), 0, string(abi.encodePacked(rule)));
    }
}
