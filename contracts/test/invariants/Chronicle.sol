// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {IRounds} from "../../src/interfaces/IRounds.sol";
import {Accounts} from "./Accounts.sol";
import {Log, recorder} from "./Recorder.sol";
import {AppealHistories} from "./AppealHistories.sol";

/// @title Chronicle: the market's state folded from its events, and the rules that concern its history
contract Chronicle is AppealHistories {
    constructor(Registry registry, Market market, IRounds rounds) Accounts(registry, market, rounds) {}

    /// Folds the events recorded since the last call.
    function fold() external {
        Log[] memory logs = recorder.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            address emitter = logs[i].emitter;
            if (emitter == address(REGISTRY)) _foldRegistry(logs[i]);
            else if (emitter == address(MARKET)) _foldMarket(logs[i]);
            else if (emitter == address(ROUNDS)) _foldRounds(logs[i]);
            else if (emitter == address(MARKET.credits())) _foldCredits(logs[i]);
        }
        _hold("fraud is slashed", _unslashedJobs == 0);
    }
}
