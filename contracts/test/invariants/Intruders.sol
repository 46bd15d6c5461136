// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Admin} from "../../src/Admin.sol";
import {Credits} from "../../src/Credits.sol";
import {Market} from "../../src/Market.sol";
import {Registry} from "../../src/Registry.sol";
import {ICredits} from "../../src/interfaces/ICredits.sol";
import {Consumption, IMarket} from "../../src/interfaces/IMarket.sol";
import {Cause, IRegistry, Node, Role} from "../../src/interfaces/IRegistry.sol";
import {IJudgement, ISettlement, Round, State} from "../../src/interfaces/IRounds.sol";
import {World} from "./World.sol";

/// @title Intruders: calls that must be refused
abstract contract Intruders is World {
    address private constant INTRUDER = address(0xBAD);

    /// Functions for other contracts only.
    function trespassBetweenContracts(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        address owner = registry.ownerOf(node);
        uint256 run_ = 1 + pick % market.runCount();
        address[3] memory callers = [INTRUDER, owner, governor];
        address from = callers[pick % 3];
        bytes4 notRounds = IRegistry.NotRounds.selector;
        address target = address(registry);
        _refused("slash", from, target, abi.encodeCall(Registry.slash, (node, 1, Cause.Fraud, 1)), notRounds);
        _refused("award", from, target, abi.encodeCall(Registry.award, (from, 1, 0)), notRounds);
        _refused(
            "reserve jobs",
            from,
            target,
            abi.encodeCall(Registry.reserveJobs, (abi.encodePacked(node, uint8(0)))),
            notRounds
        );
        _refused("free jobs", from, target, abi.encodeCall(Registry.freeJobs, (listing(node, 1))), notRounds);
        target = address(credits);
        bytes4 notMarket = ICredits.NotMarket.selector;
        _refused("lock", from, target, abi.encodeCall(Credits.lock, (owner, run_, 0)), notMarket);
        _refused("unlock", from, target, abi.encodeCall(Credits.unlock, (from, run_, 0)), notMarket);
        _refused("earn", from, target, abi.encodeCall(Credits.earn, (from, run_, 1, node, 0)), notMarket);
        bytes memory earnAll = abi.encodeCall(Credits.earnAll, (run_, 1, ""));
        _refused("earn all", from, target, earnAll, notMarket);
        _refused("grant", from, target, abi.encodeCall(Credits.grant, (from, 1, 0)));
        target = address(market);
        notRounds = IMarket.NotRounds.selector;
        _refused("reserve", from, target, abi.encodeCall(Market.reserve, (run_, 1, 0)), notRounds);
        _refused("release", from, target, abi.encodeCall(Market.release, (run_, 1, 0)), notRounds);
        _refused("pay", from, target, abi.encodeCall(Market.pay, (run_, 1, node, from, 0)), notRounds);
        bytes memory payAll = abi.encodeCall(Market.payAll, (run_, 1, ""));
        _refused("pay all", from, target, payAll, notRounds);
        _refused("deposit", from, target, abi.encodeCall(Market.deposit, (run_, 1, owner, 0)), notRounds);
        _refused("pay out", from, target, abi.encodeCall(Market.payOut, (run_, 1, from, 0)), notRounds);
        _refused("strike", from, target, abi.encodeCall(Market.strike, (run_, 1, 1)), notRounds);
        _refused("consume", from, address(rounds), abi.encodeCall(ISettlement.consume, (run_, 1, 0)));
    }

    /// Functions for another owner.
    function trespassOnOthers(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        uint256 run_ = 1 + pick % market.runCount();
        address target = address(registry);
        address from = pick % 2 == 0 ? INTRUDER : registry.ownerOf(_anyNode(pick / 32));
        if (from == registry.ownerOf(node)) from = INTRUDER;
        bytes4 notOwner = IRegistry.NotOwner.selector;
        _refused("retire another's", from, target, abi.encodeCall(Registry.retire, (node)), notOwner);
        _refused("withdraw another's", from, target, abi.encodeCall(Registry.withdraw, (node)), notOwner);
        _refused("revoke another's", from, target, abi.encodeCall(Registry.revokeKey, (node)), notOwner);
        bytes memory rotate = abi.encodeCall(Registry.rotateKey, (node, from, block.timestamp, ""));
        _refused("rotate another's", from, target, rotate, notOwner);
        target = address(market);
        // Anyone may end a validator's service that no round can use.
        if (registry.nodeOf(node).role == Role.Worker || market.joinedAt(run_, node) == 0) {
            _refused("leave another's", from, target, abi.encodeCall(Market.leave, (run_, node)));
        }
        _refused("close another's", from, target, abi.encodeCall(Market.close, (run_)));
        _refused("fund another's", from, target, abi.encodeCall(Market.fund, (run_, 1)));
        _refused("refund another's", from, target, abi.encodeCall(Market.refund, (run_, 1)));
        bytes memory publish = abi.encodeCall(Market.publish, (run_, type(uint32).max, "m", new Consumption[](0)));
        _refused("publish another's", from, target, publish);
        _refused("redeem nothing", from, address(credits), abi.encodeCall(Credits.redeem, (0)));
        bytes memory nowhere = abi.encodeCall(Credits.redeemTo, (address(0), 1));
        _refused("redeem to nobody", from, address(credits), nowhere);
        bytes memory open = abi.encodeCall(IJudgement.open, (run_, 1, 0, listing(workers[0], 1)));
        _refused("open another's", from, address(rounds), open);
        target = address(admin);
        _refused("pause as anyone", from, target, abi.encodeCall(Admin.pause, ()));
        _refused("unpause as anyone", from, target, abi.encodeCall(Admin.unpause, ()));
        _refused("name a treasury", from, target, abi.encodeCall(Admin.setTreasury, (from)));
    }

    /// Repetitions, and calls under another's name.
    function trespassOnKeys(uint256 pick) external told {
        uint32 node = _anyNode(pick);
        Node memory stored = registry.nodeOf(node);
        bool validator = stored.role == Role.Validator;
        address key = vm.addr(keyOf[node]);
        bytes memory signature = binding(INTRUDER, keyOf[node], Role.Worker, 1);
        bytes memory bound_ = abi.encodeCall(Registry.register, (Role.Worker, key, 1, block.timestamp, signature));
        _refused("bind another's key", INTRUDER, address(registry), bound_, IRegistry.KeyInUse.selector);
        Role other = validator ? Role.Worker : Role.Validator;
        address fresh = vm.addr(uint256(keccak256("fresh")));
        signature = binding(stored.owner, uint256(keccak256("fresh")), other, 1);
        bytes memory both = abi.encodeCall(Registry.register, (other, fresh, 1, block.timestamp, signature));
        _refused("hold both roles", stored.owner, address(registry), both, IRegistry.OwnerHasOtherRole.selector);
        bytes memory join = abi.encodeCall(Market.join, (1, node, keccak256("no such rules")));
        _refused("join at other rules", stored.owner, address(market), join);
    }

    /// Calls the state of a round does not allow.
    function trespassOnRounds(uint256 pick) external told {
        uint256 round = 1 + pick % rounds.roundCount();
        Round memory stored = rounds.roundOf(round);
        address target = address(rounds);
        State state = stored.state;
        bytes memory assignments = chronicle.assignmentsOf(round);
        if (state != State.Open) {
            _refused("close a closed", stranger, target, abi.encodeCall(IJudgement.close, (round, assignments)));
        }
        if (state != State.Closed) {
            _refused("draw undrawable", stranger, target, abi.encodeCall(IJudgement.draw, (round)));
        }
        if (state != State.Voting) {
            _refused("tally untallied", stranger, target, abi.encodeCall(IJudgement.tally, (round)));
        }
        if (state != State.Tallied) {
            _refused(
                "finish the unfinished", stranger, target, abi.encodeCall(ISettlement.finish, (round, assignments))
            );
        }
        if (state != State.Void) {
            _refused("free the living", stranger, target, abi.encodeCall(ISettlement.free, (round, assignments)));
        }
        if (state >= State.Tallied) {
            _refused("expire the decided", stranger, target, abi.encodeCall(IJudgement.expire, (round)));
        }
        _refused("commit unseated", stranger, target, abi.encodeCall(IJudgement.commit, (round, bytes32(uint256(1)))));
        _refused("reveal unseated", stranger, target, abi.encodeCall(IJudgement.reveal, (round, 0, 0, hex"ff", 0, 0)));
        bytes memory other = bytes.concat(assignments, listing(workers[0], 1));
        _refused("close with other assignments", stranger, target, abi.encodeCall(IJudgement.close, (round, other)));
        _refused("free with other assignments", stranger, target, abi.encodeCall(ISettlement.free, (round, other)));
    }
}
