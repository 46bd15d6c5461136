// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Errors} from "@openzeppelin/contracts/utils/Errors.sol";
import {Consumption} from "../src/interfaces/IMarket.sol";
import {Role} from "../src/interfaces/IRegistry.sol";
import {IRoundsFacts, RoundsTerms, State} from "../src/interfaces/IRounds.sol";
import {Market} from "../src/Market.sol";
import {Rounds} from "../src/Rounds.sol";
import {Settlement} from "../src/Settlement.sol";
import {Scenario, Submission} from "./Scenario.sol";

contract LifeTest is Scenario {
    /// An honest worker and a cheat from registration to withdrawal: every token is accounted for.
    function test_marketFromFirstBondToLastWithdrawal() public {
        uint256 supply = token.totalSupply();
        uint256 round = talliedRound(1000, 0x0f, 0xf0);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, 0x0f);
        vm.prank(trainer);
        market.publish(run, 1, keccak256("manifest 1"), consumed);
        settleRound(round, 1000);
        vm.assertEq(registry.isListable(workers[1]), false);

        vm.startPrank(requester);
        market.close(run);
        market.refund(run, market.runOf(run).escrow);
        credits.redeem(credits.balanceOf(requester));
        vm.stopPrank();
        _leaveAll();

        address honest = ownerNamed("worker", 0);
        vm.assertEq(token.balanceOf(honest), 8 * BOND_PER_JOB + 4 * 1000 * PRICE);
        vm.assertEq(token.balanceOf(ownerNamed("worker", 1)), 8 * BOND_PER_JOB - 4 * FRAUD_SLASH);
        registry.sweep();
        vm.assertEq(token.balanceOf(treasury), 4 * FRAUD_SLASH);
        vm.assertEq(token.balanceOf(ownerNamed("validator", 0)), VALIDATOR_BOND + JUROR_FEE);
        vm.assertEq(token.balanceOf(requester), ESCROW - 4 * 1000 * PRICE - 3 * JUROR_FEE);
        vm.assertEq(token.balanceOf(address(registry)), 0);
        vm.assertEq(token.balanceOf(address(credits)), 0);
        vm.assertEq(token.totalSupply(), supply);
    }

    function _leaveAll() private {
        uint32 count = registry.nodeCount();
        for (uint32 node = 1; node <= count; ++node) {
            vm.prank(registry.ownerOf(node));
            registry.retire(node);
        }
        pass(UNBONDING);
        for (uint32 node = 1; node <= count; ++node) {
            address owner = registry.ownerOf(node);
            vm.startPrank(owner);
            registry.withdraw(node);
            if (credits.balanceOf(owner) != 0) credits.redeem(credits.balanceOf(owner));
            vm.stopPrank();
        }
    }

    function test_roundOf256JobsGoesThroughInFourBatches() public {
        uint32 node = registerNode(Role.Worker, ownerNamed("large", 0), 256);
        pass(ACTIVATION);
        joinRun(run, node);
        bytes memory assignments = listing(node, 256);
        uint256 round = openRound(assignments);
        for (uint256 i; i < 4; ++i) {
            rounds.submit(round, assignments, packed(_part(round, node, i)));
        }
        closeDue(round, assignments);
        mine(1);
        rounds.draw(round);
        voteAll(round, type(uint256).max, 0);
        tallyDue(round);
        for (uint256 i; i < 4; ++i) {
            rounds.settle(round, uint8(i), assignments, settled(_part(round, node, i)));
        }
        requireState(round, State.Settled);
        vm.assertEq(credits.balanceOf(ownerNamed("large", 0)), 256 * 10 * PRICE);
    }

    function _part(uint256 round, uint32 node, uint256 index) private view returns (Submission[] memory) {
        return one(submission(round, node, leavesOf(64 * index, 64, 10)));
    }

    /// One batch a job is the most there can be: the count of batches must hold 256.
    function test_roundOf256BatchesEnds() public {
        uint32 node = registerNode(Role.Worker, ownerNamed("large", 0), 256);
        pass(ACTIVATION);
        joinRun(run, node);
        bytes memory assignments = listing(node, 256);
        uint256 round = openRound(assignments);
        for (uint256 job; job < 256; ++job) {
            rounds.submit(round, assignments, packed(one(submission(round, node, leaf(uint8(job), 10)))));
        }
        vm.assertEq(rounds.roundOf(round).batches, 256);
        closeDue(round, assignments);
        mine(1);
        rounds.draw(round);
        voteAll(round, type(uint256).max, 0);
        tallyDue(round);
        for (uint256 job; job < 256; ++job) {
            Submission[] memory items = one(submission(round, node, leaf(uint8(job), 10)));
            rounds.settle(round, uint8(job), assignments, settled(items));
        }
        requireState(round, State.Settled);
        vm.assertEq(registry.nodeOf(node).inFlight, 0);
    }

    function test_roundsRefusesContractsThatNameAnother() public {
        vm.expectRevert(IRoundsFacts.WrongDeployment.selector);
        new Rounds(registry, market, roundsTerms());
        Market other = new Market(registry, credits, address(rounds), marketTerms());
        vm.expectRevert(IRoundsFacts.WrongDeployment.selector);
        new Rounds(registry, other, roundsTerms());
    }

    function test_fraudNeverCostsMoreThanTheBondBehindAJob() public {
        RoundsTerms memory dear = roundsTerms();
        dear.fraudSlash = BOND_PER_JOB + 1;
        vm.expectRevert(
            abi.encodeWithSelector(IRoundsFacts.SlashAboveBond.selector, uint256(BOND_PER_JOB) + 1, BOND_PER_JOB)
        );
        new Rounds(registry, market, dear);
    }

    function test_everyContractTellsTheTermsItWasMadeWith() public view {
        vm.assertEq(keccak256(abi.encode(rounds.terms())), keccak256(abi.encode(roundsTerms())));
        vm.assertEq(keccak256(abi.encode(registry.terms())), keccak256(abi.encode(registryTerms())));
        vm.assertEq(keccak256(abi.encode(market.terms())), keccak256(abi.encode(marketTerms())));
        vm.assertEq(address(rounds.admin()), address(admin));
    }

    /// A direct call to Settlement moves nothing: it holds no rounds, and no contract accepts it as a caller.
    function test_settlementCalledDirectlyMovesNothing() public {
        uint256 round = talliedRound(10, 255, 0);
        Settlement half = Settlement(vm.computeCreateAddress(address(rounds), 1));
        bytes memory batch = settled(bothSubmissions(round, 10));
        bytes memory assignments = fourEach();
        bytes memory unknown = abi.encodeWithSelector(IRoundsFacts.WrongState.selector, round, State.None);
        vm.expectRevert(unknown);
        half.settle(round, 0, assignments, batch);
        vm.expectRevert(unknown);
        half.finish(round, assignments);
        vm.expectRevert(unknown);
        half.appeal(round, 0, 0, batch);
        vm.expectRevert(unknown);
        half.free(round, assignments);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.NotMarket.selector, address(this)));
        half.consume(run, round, 1);
        vm.expectRevert();
        half.conclude(round, true);
        vm.expectRevert();
        half.conclude(round, false);
    }

    function test_roundsRefusesACallThatNeitherHalfHas() public {
        bytes[3] memory calls = [bytes(""), hex"00", abi.encodeWithSignature("absent()")];
        for (uint256 i; i < calls.length; ++i) {
            (bool done, bytes memory answer) = address(rounds).call(calls[i]);
            vm.assertEq(done, false);
            vm.assertEq(keccak256(answer), keccak256(abi.encodeWithSelector(Errors.FailedCall.selector)));
        }
    }

    function test_everyContractFitsTheSizeLimit() public view {
        vm.assertLe(address(rounds).code.length, 24_576);
        vm.assertLe(vm.computeCreateAddress(address(rounds), 1).code.length, 24_576);
        vm.assertLe(address(admin).code.length, 24_576);
        vm.assertLe(address(market).code.length, 24_576);
        vm.assertLe(address(registry).code.length, 24_576);
        vm.assertLe(address(credits).code.length, 24_576);
        vm.assertLe(address(token).code.length, 24_576);
        vm.assertLe(address(traps).code.length, 24_576);
    }
}
