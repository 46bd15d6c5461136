// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Consumption, IMarket} from "../src/interfaces/IMarket.sol";
import {IRoundsFacts, RoundsTerms} from "../src/interfaces/IRounds.sol";
import {ITraps, Trap, TrapKind, TrapSet} from "../src/interfaces/ITraps.sol";
import {Rounds} from "../src/Rounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Traps: a requester's planted faults, and everything it could try with them
contract TrapsTest is Appeals {
    uint128 private constant BOUNTY = 3 ether;

    /// The leaves of the set, four by default: two traps in one tree with two decoys.
    Trap[] private _leaves;
    uint256 private _set;

    function setUp() public override {
        super.setUp();
        give(requester, 100 ether, address(traps));
        uint48 next = _next();
        _leaves.push(_leaf(workers[0], next, next + 3, TrapKind.OtherSeed));
        _leaves.push(_leaf(workers[0], next, next + 3, TrapKind.OneAnswer));
        _leaves.push(_leaf(workers[1], next, next + 3, TrapKind.Decoy));
        _leaves.push(_leaf(workers[1], next, next + 3, TrapKind.Decoy));
        _set = _announced(4);
    }

    function test_jurorsThatFoundATrapShareItsBountyAndTheNodeIsSlashedLikeAnyOther() public {
        uint256 bond = registry.nodeOf(workers[0]).bond;
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        uint32[] memory jurors = jurorsOf(round);
        vm.expectEmit(address(traps));
        emit ITraps.TrapOpened(_set, round, workers[0], 0, TrapKind.OtherSeed, traps.leafOf(_leaves[0]), jurors, BOUNTY);
        _open(0, round, 0);
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(token.balanceOf(registry.ownerOf(jurors[i])), BOUNTY / 3, "finder");
        }
        settleAll(round);
        requireEnded(round);
        vm.assertEq(registry.nodeOf(workers[0]).bond, bond - FRAUD_SLASH, "slashed");
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 3 * uint256(UNITS) * PRICE, "unpaid");
        _requireHeld(3);
    }

    function test_onlySeatsThatVotedFraudAreFinders() public {
        uint256 round = _found(Choice.Fraud, Choice.Accept, Choice.Fraud);
        uint32[] memory jurors = jurorsOf(round);
        _open(0, round, 0);
        vm.assertEq(token.balanceOf(registry.ownerOf(jurors[1])), 0);
        vm.assertEq(token.balanceOf(registry.ownerOf(jurors[0])), BOUNTY / 2);
        vm.assertEq(token.balanceOf(registry.ownerOf(jurors[2])), BOUNTY / 2);
    }

    /// What shares leave over, and a bounty that nobody earned, is the treasury's: the setter gains nothing by any division.
    function test_whatNoFinderEarnsIsTheTreasurys() public {
        give(requester, 100, address(traps));
        delete _leaves;
        _leaves.push(_leaf(workers[0], _next(), _next(), TrapKind.OtherSeed));
        bytes32 root = _root();
        uint48 next = _next();
        vm.prank(requester);
        _set = traps.set(run, root, 1, 100, next, _soon());
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        _open(0, round, 0);
        vm.assertEq(token.balanceOf(treasury), 1);
    }

    /// A committee that reads nothing accepts a trap: only a trial makes it pay, and the setter ends poorer all the same.
    function test_missedTrapIsAppealedAndTheSetterGainsNothing() public {
        uint256 round = _found(Choice.Accept, Choice.Accept, Choice.Accept);
        uint32[] memory jurors = jurorsOf(round);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
        buy(requester, DEPOSIT);
        uint256 before = credits.balanceOf(requester);
        uint256 appealRound = appealBy(requester, round, 0);
        mine(1);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
        tried(appealRound, Choice.Fraud);
        _open(0, round, 0);
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(registry.nodeOf(jurors[i]).bond, VALIDATOR_BOND - OVERTURN_PENALTY, "paid");
            vm.assertEq(token.balanceOf(registry.ownerOf(jurors[i])), 0, "no finder");
        }
        vm.assertEq(token.balanceOf(treasury), BOUNTY, "nobody found it");
        vm.assertLe(credits.balanceOf(requester) - before, FRAUD_SLASH, "less than its node lost");
        settleAll(round);
        requireEnded(round);
    }

    function test_verdictThatIsBeingAppealedOpensNothing() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        uint256 appealRound = appealed(round);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
        tried(appealRound, Choice.Accept);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
    }

    function test_verdictThatATrialConfirmedOpensTheTrap() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Accept);
        tried(appealed(round), Choice.Fraud);
        _open(0, round, 0);
        vm.assertEq(token.balanceOf(registry.ownerOf(jurorsOf(round)[0])), BOUNTY / 2);
    }

    function test_unavailableAndVoidJobsAreNoTraps() public {
        uint256 round = _found(Choice.Unavailable, Choice.Unavailable, Choice.Unavailable);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
        round = judged(Choice.Void);
        _refused(abi.encodeWithSelector(ITraps.NotFraud.selector, round, 0), 0, round, 0);
    }

    function test_endedRoundOpensNothing() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        settleAll(round);
        // The hash of an ended round's assignments is gone.
        _refused(abi.encodeWithSelector(ITraps.NotTheTrap.selector, round, 0), 0, round, 0);
    }

    function test_jobThatWasTrainedOnOpensNothing() public {
        uint256 round = _found(Choice.Accept, Choice.Accept, Choice.Accept);
        Consumption[] memory consumed = new Consumption[](1);
        consumed[0] = Consumption(round, 1);
        vm.prank(trainer);
        market.publish(run, 1, MANIFEST, consumed);
        tried(appealed(round), Choice.Fraud);
        _refused(abi.encodeWithSelector(ITraps.TrainedOn.selector, round, 0), 0, round, 0);
    }

    /// Fraud cannot be called a trap afterwards: not in another round, run, job or of another node than was announced.
    function test_onlyTheJobThatWasNamedBeforeIsTheTrap() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        _refused(abi.encodeWithSelector(ITraps.NotTheTrap.selector, round, 4), 0, round, 4);
        uint256 other = openRun(appealTerms());
        fundRun(other, ESCROW);
        bytes memory refusal = abi.encodeWithSelector(ITraps.NotTheTrap.selector, round, 0);
        uint48 first = uint48(round + 1);
        delete _leaves;
        _leaves.push(_leaf(workers[0], uint48(round), first, TrapKind.OtherSeed));
        _leaves.push(_leaf(workers[0], first, first, TrapKind.OtherSeed));
        _set = _announced(2);
        _refused(refusal, 0, round, 0);
        _refused(refusal, 1, round, 0);
        (run, other) = (other, run);
        delete _leaves;
        uint48 next = _next();
        _leaves.push(_leaf(workers[0], next, next, TrapKind.OtherSeed));
        _set = _announced(1);
        run = other;
        round = judged(Choice.Fraud);
        _refused(abi.encodeWithSelector(ITraps.NotTheTrap.selector, round, 0), 0, round, 0);
    }

    function test_otherAssignmentsAreRefused() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        bytes32[] memory proof = _proof(0);
        vm.expectRevert(abi.encodeWithSelector(ITraps.NotTheTrap.selector, round, 0));
        traps.open(_set, _leaves[0], proof, round, 0, listing(workers[0], 4));
    }

    function test_leafAndJobServeOnceEach() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        _open(0, round, 0);
        vm.assertEq(traps.trapped(round), 1);
        _refused(abi.encodeWithSelector(ITraps.WrongLeaf.selector, _set, traps.leafOf(_leaves[0])), 0, round, 0);
        _refused(abi.encodeWithSelector(ITraps.AlreadyOpened.selector, round, 0), 1, round, 0);
    }

    function test_falseLeafOrSaltIsRefused() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        bytes32[] memory proof = _proof(0);
        Trap memory forged = _leaves[0];
        forged.salt = keccak256("another");
        bytes memory refusal = abi.encodeWithSelector(ITraps.WrongLeaf.selector, _set, traps.leafOf(forged));
        vm.expectRevert(refusal);
        traps.open(_set, forged, proof, round, 0, fourEach());
        vm.expectRevert(abi.encodeWithSelector(ITraps.UnknownSet.selector, _set + 1));
        traps.open(_set + 1, _leaves[0], proof, round, 0, fourEach());
        vm.expectRevert(abi.encodeWithSelector(ITraps.UnknownSet.selector, _set + 1));
        traps.setOf(_set + 1);
    }

    function test_moreLeavesThanWerePaidForAreWorthNothing() public {
        uint48 next = _next();
        _set = _announced(1);
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        vm.assertEq(round, next);
        _open(0, round, 0);
        for (uint256 i; i < 3; ++i) {
            openRound(listing(workers[0], 1));
        }
        _refusedDecoy(abi.encodeWithSelector(ITraps.WrongLeaf.selector, _set, traps.leafOf(_leaves[2])), 2);
    }

    function test_decoyReturnsItsShareOnceItsRoundsWereOpened() public {
        uint48 last = _leaves[2].to;
        while (rounds.roundCount() < last) {
            _refusedDecoy(abi.encodeWithSelector(ITraps.RoundsAhead.selector, last, rounds.roundCount()), 2);
            openRound(listing(workers[0], 1));
        }
        uint256 before = token.balanceOf(requester);
        vm.expectEmit(address(traps));
        emit ITraps.DecoyOpened(_set, requester, traps.leafOf(_leaves[2]), BOUNTY);
        traps.openDecoy(_set, _leaves[2], _proof(2));
        vm.assertEq(token.balanceOf(requester), before + BOUNTY);
        _refusedDecoy(abi.encodeWithSelector(ITraps.WrongLeaf.selector, _set, traps.leafOf(_leaves[2])), 2);
        _requireHeld(3);
    }

    /// A fault that was planted and slipped through is not returned as if it had been none.
    function test_trapIsNoDecoyAndADecoyNoTrap() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        _refusedDecoy(abi.encodeWithSelector(ITraps.WrongKind.selector, TrapKind.OtherSeed), 0);
        _refused(abi.encodeWithSelector(ITraps.WrongKind.selector, TrapKind.Decoy), 2, round, 4);
    }

    function test_whatIsNotOpenedInTimeIsLost() public {
        uint256 round = _found(Choice.Fraud, Choice.Fraud, Choice.Fraud);
        _open(0, round, 0);
        uint256 deadline = traps.setOf(_set).openBy;
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IRoundsFacts.TooEarly.selector, deadline, deadline));
        traps.forfeit(_set);
        vm.warp(deadline + 1);
        _refused(abi.encodeWithSelector(IRoundsFacts.TooLate.selector, deadline, deadline + 1), 1, round, 1);
        vm.expectEmit(address(traps));
        emit ITraps.TrapsForfeited(_set, treasury, 3, 3 * uint256(BOUNTY));
        traps.forfeit(_set);
        vm.assertEq(token.balanceOf(treasury), 3 * uint256(BOUNTY));
        vm.expectRevert(abi.encodeWithSelector(ITraps.BadTraps.selector, "leaves"));
        traps.forfeit(_set);
        _requireHeld(0);
    }

    function test_onlyTheRequesterSetsTrapsForRoundsThatAreNotOpen() public {
        uint48 next = _next();
        uint40 soon = _soon();
        vm.expectRevert(abi.encodeWithSelector(IMarket.NotRequester.selector, run, requester, address(this)));
        traps.set(run, "root", 1, 1, next, soon);
        _badSet("leaves", 0, 1, next, soon);
        _badSet("bounty", 1, 0, next, soon);
        _badSet("first", 1, 1, next - 1, soon);
        _badSet("openBy", 1, 1, next, uint40(block.timestamp));
        _badSet("openBy", 1, 1, next, uint40(block.timestamp + traps.MAX_SECONDS() + 1));
        uint256 without = openRun(runTerms());
        vm.expectRevert(abi.encodeWithSelector(ITraps.NoAppeals.selector, without));
        vm.prank(requester);
        traps.set(without, "root", 1, 1, next, soon);
        uint40 latest = uint40(block.timestamp + traps.MAX_SECONDS());
        vm.prank(requester);
        traps.set(run, "root", 1, 1, next, latest);
    }

    function test_setTellsWhatWasPaidForIt() public view {
        TrapSet memory stored = traps.setOf(_set);
        vm.assertEq(stored.setter, requester);
        vm.assertEq(stored.run, run);
        vm.assertEq(stored.leaves, 4);
        vm.assertEq(stored.opened, 0);
        vm.assertEq(stored.bounty, BOUNTY);
        vm.assertEq(stored.root, _root());
        vm.assertEq(traps.setCount(), 1);
        _requireHeld(4);
    }

    /// Otherwise a requester could plant faults, have its own jurors miss none of them, and live on the others' penalties.
    function test_appellantNeverGainsMoreThanTheFaultCosts() public {
        RoundsTerms memory rich = roundsTerms();
        rich.appealBounty = FRAUD_SLASH + 1;
        vm.expectRevert(
            abi.encodeWithSelector(IRoundsFacts.BountyAboveSlash.selector, uint256(FRAUD_SLASH) + 1, FRAUD_SLASH)
        );
        new Rounds(registry, market, rich);
    }

    function _next() private view returns (uint48) {
        return uint48(rounds.roundCount() + 1);
    }

    function _soon() private view returns (uint40) {
        return uint40(block.timestamp + 30 days);
    }

    function _leaf(uint32 node, uint48 from, uint48 to, TrapKind kind) private view returns (Trap memory) {
        return Trap(node, from, to, kind, keccak256(abi.encode("salt", _leaves.length)));
    }

    function _announced(uint16 leaves) private returns (uint256) {
        (bytes32 root, uint48 next, uint40 soon) = (_root(), _next(), _soon());
        vm.prank(requester);
        return traps.set(run, root, leaves, BOUNTY, next, soon);
    }

    /// A round of which the three jurors vote so on job 0, and accept the others.
    function _found(Choice first, Choice second, Choice third) private returns (uint256 round) {
        round = drawnRound(UNITS);
        Choice[] memory choices = new Choice[](3);
        (choices[0], choices[1], choices[2]) = (first, second, third);
        vote(round, choices);
        tallyDue(round);
    }

    function _open(uint256 index, uint256 round, uint8 job) private {
        traps.open(_set, _leaves[index], _proof(index), round, job, fourEach());
    }

    function _refused(bytes memory refusal, uint256 index, uint256 round, uint8 job) private {
        bytes32[] memory proof = _proof(index);
        vm.expectRevert(refusal);
        traps.open(_set, _leaves[index], proof, round, job, fourEach());
    }

    function _refusedDecoy(bytes memory refusal, uint256 index) private {
        bytes32[] memory proof = _proof(index);
        vm.expectRevert(refusal);
        traps.openDecoy(_set, _leaves[index], proof);
    }

    function _badSet(string memory field, uint16 leaves, uint128 bounty, uint48 first, uint40 openBy) private {
        vm.expectRevert(abi.encodeWithSelector(ITraps.BadTraps.selector, field));
        vm.prank(requester);
        traps.set(run, "root", leaves, bounty, first, openBy);
    }

    function _requireHeld(uint256 leaves) private view {
        vm.assertEq(token.balanceOf(address(traps)), leaves * BOUNTY, "deposits kept");
    }

    // A tree of one, two or four leaves

    function _root() private view returns (bytes32) {
        if (_leaves.length == 1) return _hash(0);
        if (_leaves.length == 2) return _pair(_hash(0), _hash(1));
        return _pair(_pair(_hash(0), _hash(1)), _pair(_hash(2), _hash(3)));
    }

    function _proof(uint256 index) private view returns (bytes32[] memory proof) {
        proof = new bytes32[](_leaves.length / 2);
        if (proof.length > 0) proof[0] = _hash(index ^ 1);
        if (proof.length > 1) proof[1] = index < 2 ? _pair(_hash(2), _hash(3)) : _pair(_hash(0), _hash(1));
    }

    function _hash(uint256 index) private view returns (bytes32) {
        return traps.leafOf(_leaves[index]);
    }

    function _pair(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return left < right ? keccak256(abi.encode(left, right)) : keccak256(abi.encode(right, left));
    }
}
