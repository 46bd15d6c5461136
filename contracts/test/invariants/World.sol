// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunTerms} from "../../src/interfaces/IMarket.sol";
import {Role} from "../../src/interfaces/IRegistry.sol";
import {Round, State} from "../../src/interfaces/IRounds.sol";
import {Scenario} from "../Scenario.sol";
import {Chronicle} from "./Chronicle.sol";
import {recorder} from "./Recorder.sol";

/// @title World: three runs, ten validators and four workers of three owners
/// @notice One run offers no appeals (committee of 3), one has committees of 1 and 3, one of 3 and 5. Every verb goes through
/// `_do` (must succeed, or the call is undone), `_due` (a party's right: a refusal is a breach) or `_refused` (a success is a
/// breach), and is counted by its name.
abstract contract World is Scenario {
    uint256 private constant RECENT = 8;
    uint256 private constant VALIDATORS = 10;

    Chronicle public chronicle;
    uint256[] internal runs;
    address[] internal people;
    mapping(address => bool) private _met;
    mapping(bytes32 verb => uint256) public done;
    bytes32[] public verbs;
    /// The last call that should have reverted and did not, and the last that should have succeeded and did not.
    bytes32 public trespassed;
    bytes32 public blocked;
    uint256 public donatedToRegistry;
    uint256 public donatedToCredits;

    /// A handler: its events are folded, and a call that does nothing is undone.
    modifier told() {
        recorder.recordLogs();
        _;
        chronicle.fold();
    }

    function setUp() public virtual override {
        vm.warp(1_700_000_000);
        vm.roll(100);
        recorder.recordLogs();
        deploy();
        chronicle = new Chronicle(registry, market, rounds);
        for (uint256 i; i < VALIDATORS; ++i) {
            validators.push(_enrol(Role.Validator, ownerNamed("validator", i), 1));
        }
        for (uint256 i; i < 4; ++i) {
            workers.push(_enrol(Role.Worker, ownerNamed("worker", i % 3), 8));
        }
        pass(ACTIVATION);
        _found(0, 3, 0);
        _found(1, 1, 3);
        _found(2, 3, 5);
        for (uint256 i; i < 8; ++i) {
            _meet([governor, treasury, requester, coordinator, trainer, stranger, address(0xD0), address(0xA99)][i]);
        }
        buy(address(0xA99), 1 ether);
        chronicle.fold();
    }

    function _found(uint256 index, uint8 committee, uint8 appealSeats) private {
        RunTerms memory terms = runTerms();
        (terms.committee, terms.appealSeats) = (committee, appealSeats);
        terms.challengeSeconds = appealSeats == 0 ? 0 : 400;
        terms.jurorFee = JUROR_FEE + uint128(index);
        runs.push(openRun(terms));
        fundRun(runs[index], 1 ether);
        for (uint256 i; i < workers.length; ++i) {
            joinRun(runs[index], workers[i]);
        }
    }

    function _enrol(Role role, address owner, uint32 capacity) internal returns (uint32) {
        _meet(owner);
        return registerNode(role, owner, capacity);
    }

    function _meet(address person) internal {
        if (_met[person]) return;
        _met[person] = true;
        people.push(person);
    }

    // Verbs

    function _count(bytes32 verb) internal {
        if (++done[verb] == 1) verbs.push(verb);
    }

    function _do(bytes32 verb, address from, address target, bytes memory data) internal returns (bytes memory answer) {
        vm.prank(from);
        bool ok;
        (ok, answer) = target.call(data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(answer, 32), mload(answer))
            }
        }
        _count(verb);
    }

    function _due(bytes32 verb, address from, address target, bytes memory data) internal {
        (bool ok,) = _try(from, target, data);
        if (ok) _count(verb);
        else blocked = verb;
    }

    function _refused(bytes32 verb, address from, address target, bytes memory data) internal {
        (bool ok,) = _try(from, target, data);
        if (ok) trespassed = verb;
        else _count(verb);
    }

    /// Refused with this very error; anything else is a breach, so that nothing is refused for a wrong reason.
    function _refused(bytes32 verb, address from, address target, bytes memory data, bytes4 reason) internal {
        (bool ok, bytes memory answer) = _try(from, target, data);
        if (ok || bytes4(answer) != reason) trespassed = verb;
        else _count(verb);
    }

    /// Forge records the events of a call that reverts as well; they never happened.
    function _try(address from, address target, bytes memory data) private returns (bool ok, bytes memory answer) {
        chronicle.fold();
        vm.prank(from);
        (ok, answer) = target.call(data);
        if (!ok) recorder.getRecordedLogs();
    }

    // Choices

    /// Picks one of the newest rounds in `state`; if there is none, brings one there.
    function _roundIn(State state, uint256 pick) internal returns (uint256) {
        uint256 count = rounds.roundCount();
        for (uint256 i; i < RECENT; ++i) {
            uint256 back = (pick % RECENT + i) % RECENT;
            if (back < count && rounds.roundOf(count - back).state == state) return count - back;
        }
        return _bring(state, pick);
    }

    /// Opens a round and takes it to `state`.
    function _bring(State state, uint256 pick) internal virtual returns (uint256 round);

    function _anyNode(uint256 pick) internal view returns (uint32) {
        return uint32(1 + pick % registry.nodeCount());
    }

    function _anyRun(uint256 pick) internal view returns (uint256 run_) {
        run_ = 1 + pick % market.runCount();
        require(!market.runOf(run_).closed, "closed");
    }

    function _isAppeal(uint256 round) internal view returns (bool) {
        return rounds.appealAt(round).round != 0;
    }

    function _endsBy(Round memory stored) internal pure returns (uint256) {
        return uint256(stored.openedAt) + MAX_ROUND;
    }

    function _warpTo(uint256 timestamp) internal {
        if (block.timestamp < timestamp) vm.warp(timestamp);
        mine(1);
    }

    // Views for the checks

    function contracts() external view returns (address, address, address, address, address, address) {
        return (address(token), address(admin), address(registry), address(credits), address(market), address(rounds));
    }

    function everybody() external view returns (address[] memory) {
        return people;
    }

    function allVerbs() external view returns (bytes32[] memory) {
        return verbs;
    }
}
