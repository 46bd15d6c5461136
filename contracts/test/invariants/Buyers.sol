// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Credits} from "../../src/Credits.sol";
import {Market} from "../../src/Market.sol";
import {Consumption, IMarket, Run, RunTerms} from "../../src/interfaces/IMarket.sol";
import {Node, Role} from "../../src/interfaces/IRegistry.sol";
import {Round, State} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Buyers: requesters and trainers, who open runs, fund them and publish checkpoints
abstract contract Buyers is World {
    uint256 private constant MOST_RUNS = 5;

    function openAnotherRun(uint256 pick) external told {
        require(market.runCount() < MOST_RUNS, "enough");
        RunTerms memory terms = runTerms();
        terms.committee = uint8(1 + 2 * (pick % 2));
        terms.rulesHash = keccak256(abi.encode("rules", pick));
        uint256 run_ = openRun(terms);
        fundRun(run_, 1 ether);
        runs.push(run_);
        for (uint256 i; i < workers.length; ++i) {
            if (registry.nodeOf(workers[i]).withdrawn) continue;
            vm.prank(registry.ownerOf(workers[i]));
            market.join(run_, workers[i], terms.rulesHash);
        }
        _count("openRun");
    }

    function fund(uint256 pick, uint128 amount) external told {
        uint256 run_ = _anyRun(pick);
        amount = uint128(bound(amount, 1, 1 ether));
        buy(requester, amount);
        _count("buy");
        _due("fund", requester, address(market), abi.encodeCall(Market.fund, (run_, amount)));
    }

    /// New terms at a new price; once they count, a worker has to join again.
    uint256 private _rulesMade;

    function announce(uint256 pick) external told {
        uint256 run_ = _anyRun(pick);
        require(pick % 4 == 0 || run_ > 3, "spared");
        RunTerms memory terms = market.runOf(run_).terms;
        bytes memory same = abi.encodeCall(Market.announce, (run_, terms));
        _refused("announce rules used before", requester, address(market), same, IMarket.RulesUsedBefore.selector);
        terms.rulesHash = keccak256(abi.encode("new rules", ++_rulesMade));
        terms.pricePerUnit = uint128(3 + pick % 5);
        _due("announce", requester, address(market), abi.encodeCall(Market.announce, (run_, terms)));
    }

    /// All nodes join at new terms in effect.
    function rejoin(uint256 pick) external told {
        uint256 run_ = _anyRun(pick);
        RunTerms memory terms = market.runOf(run_).terms;
        (, uint40 effectiveAt) = market.announcedOf(run_);
        if (pick % 2 == 0 && effectiveAt != 0) _warpTo(effectiveAt);
        terms = market.runOf(run_).terms;
        for (uint256 i; i < workers.length; ++i) {
            uint32 node = workers[i];
            if (market.joinedAt(run_, node) == terms.rulesHash) continue;
            bytes memory call = abi.encodeCall(Market.join, (run_, node, terms.rulesHash));
            _due("rejoin", registry.ownerOf(node), address(market), call);
        }
        serve(run_);
    }

    function serveAll() internal {
        for (uint256 run_ = 1; run_ <= market.runCount(); ++run_) {
            if (!market.runOf(run_).closed) serve(run_);
        }
    }

    /// Every validator in service joins at the terms in effect, unless its strikes keep it out.
    function serve(uint256 run_) internal {
        bytes32 rules = market.runOf(run_).terms.rulesHash;
        for (uint32 node = 1; node <= registry.nodeCount(); ++node) {
            Node memory stored = registry.nodeOf(node);
            if (stored.role != Role.Validator || stored.retiredAt != 0) continue;
            if (market.joinedAt(run_, node) == rules) continue;
            bytes memory call = abi.encodeCall(Market.join, (run_, node, rules));
            (uint256 strikes,) = market.strikesOf(run_, node);
            bytes4 out = IMarket.StruckOut.selector;
            if (strikes >= MAX_STRIKES) _refused("join struck out", stored.owner, address(market), call, out);
            else _due("serve", stored.owner, address(market), call);
        }
    }

    function closeRun(uint256 pick) external told {
        uint256 run_ = _anyRun(pick);
        require(run_ > 3 || pick % 32 == 0, "spared");
        bytes memory early = abi.encodeCall(Market.refund, (run_, 1));
        _refused("refund an open run", requester, address(market), early, IMarket.RunNotClosed.selector);
        _due("closeRun", requester, address(market), abi.encodeCall(Market.close, (run_)));
        bytes memory late = abi.encodeCall(Market.fund, (run_, 1));
        _refused("fund a closed run", requester, address(market), late, IMarket.RunIsClosed.selector);
    }

    function refund(uint256 pick, uint128 amount) external told {
        for (uint256 i; i < market.runCount(); ++i) {
            uint256 run_ = 1 + (pick % 64 + i) % market.runCount();
            Run memory stored = market.runOf(run_);
            if (!stored.closed || stored.escrow == 0) continue;
            bytes memory more = abi.encodeCall(Market.refund, (run_, stored.escrow + 1));
            _refused("refund what is reserved", requester, address(market), more, IMarket.EscrowTooSmall.selector);
            bytes memory call = abi.encodeCall(Market.refund, (run_, uint128(bound(amount, 1, stored.escrow))));
            return _due("refund", requester, address(market), call);
        }
        require(false, "nothing to refund");
    }

    function publish(uint256 pick, uint256 jobs) external told {
        uint256 round = _roundIn(pick % 2 == 0 ? State.Tallied : State.Settled, pick / 2);
        Round memory stored = rounds.roundOf(round);
        uint256 accepted = stored.accepted & ~stored.fraud;
        jobs &= accepted & ~stored.consumed;
        require(jobs != 0 && !_isAppeal(round), "nothing to train on");
        _due("publish", trainer, address(market), _checkpoint(stored.run, round, jobs));
        _refused("consume twice", trainer, address(market), _checkpoint(stored.run, round, jobs));
        bytes memory unaccepted = _checkpoint(stored.run, round, ~accepted);
        _refused("consume what was not accepted", trainer, address(market), unaccepted);
        bytes memory elsewhere = _checkpoint(stored.run == 1 ? 2 : 1, round, 0);
        _refused("consume another run's", trainer, address(market), elsewhere);
    }

    function _checkpoint(uint256 run_, uint256 round, uint256 jobs) private view returns (bytes memory) {
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, jobs);
        uint32 version = market.runOf(run_).version + 1;
        return abi.encodeCall(Market.publish, (run_, version, keccak256("manifest"), consumed));
    }

    function buyAndKeep(uint256 pick, uint256 amount) external told {
        address owner = people[pick % people.length];
        give(owner, bound(amount, 1, 1 ether), address(credits));
        bytes memory call = abi.encodeCall(Credits.buy, (bound(amount, 1, 1 ether)));
        _due("buy", owner, address(credits), call);
    }
}
