// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IMarket, RunTerms} from "../src/interfaces/IMarket.sol";
import {State} from "../src/interfaces/IRounds.sol";
import {Bitmaps} from "../src/libraries/Bitmaps.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Attacks by which an outsider, a worker or a requester once made honest people pay
contract AttacksTest is Appeals {
    /// Stands for all that the worker's owner has, its node's bond included.
    function _wealth(address owner, uint32 node) private view returns (uint256) {
        return token.balanceOf(owner) + credits.balanceOf(owner) + registry.nodeOf(node).bond;
    }

    function _jurorsBonds() private view returns (uint256 bonds) {
        for (uint256 i; i < validators.length; ++i) {
            bonds += registry.nodeOf(validators[i]).bond;
        }
    }

    /// The owner of the first worker, with credits for an appeal.
    function _appealingOwner() private returns (address owner) {
        owner = ownerNamed("worker", 0);
        buy(owner, DEPOSIT);
    }

    /// A requester opens runs in which nobody can vote in time, at no cost, and its rounds fine the jurors drawn.
    function test_poisonRunNeitherOpensWithImpossibleWindowsNorFinesThoseItLeftNoTime() public {
        RunTerms memory terms = runTerms();
        (terms.commitSeconds, terms.rulesHash) = (1, keccak256("poison"));
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "commitSeconds"));
        market.open(terms, MANIFEST, "");
        (terms.commitSeconds, terms.jurorFee) = (MIN_COMMIT, 0);
        vm.expectRevert(abi.encodeWithSelector(IMarket.BadTerms.selector, "jurorFee"));
        market.open(terms, MANIFEST, "");
        uint256 bonds = _jurorsBonds();
        uint256 eligible = registry.eligible();
        uint256 poisoned;
        for (; _seatable(); ++poisoned) {
            uint256 round = submittedRound(UNITS);
            while (rounds.roundOf(round).state != State.Void) {
                mine(1);
                rounds.draw(round);
                pass(201);
                rounds.tally(round);
            }
            rounds.free(round, fourEach());
        }
        vm.assertEq(_jurorsBonds(), bonds, "bonds");
        vm.assertEq(registry.eligible(), eligible, "in service");
        vm.assertTrue(poisoned > 0 && poisoned <= 4, "the run soon has no validators left");
        (uint256 slots,) = market.jurorSlots(1, RULES);
        vm.assertEq(slots, 7, "and other runs have theirs");
    }

    function _seatable() private view returns (bool) {
        (uint256 slots,) = market.jurorSlots(run, RULES);
        return Bitmaps.count(slots) >= 3 + SEATS;
    }

    /// A worker withholds its file, or serves junk, until the first verdict; on appeal the true bytes appear.
    function test_withheldFileThatAppearsOnAppealCostsNoJurorAnythingAndEarnsNoBounty() public {
        address owner = _appealingOwner();
        uint256 before = _wealth(owner, workers[0]);
        uint256 bonds = _jurorsBonds();
        uint256 round = judged(Choice.Unavailable);
        uint256 appealRound = appealBy(owner, round, 0);
        mine(1);
        tried(appealRound, Choice.Accept);
        settleAll(round);
        requireEnded(round);
        vm.assertEq(_jurorsBonds(), bonds, "no juror is fined");
        uint256 pay = 4 * UNITS * PRICE;
        vm.assertEq(_wealth(owner, workers[0]), before + pay - SEATS * JUROR_FEE, "its pay less the appeal's fees");
    }

    /// A condemned worker appeals and hides the file, so that no juror of the appeal can confirm the fraud.
    function test_condemnedWorkerThatHidesItsFileFromTheAppealIsSlashedAllTheSame() public {
        address owner = _appealingOwner();
        uint256 before = _wealth(owner, workers[0]);
        uint256 round = judged(Choice.Fraud);
        uint256 appealRound = appealBy(owner, round, 0);
        mine(1);
        tried(appealRound, Choice.Unavailable);
        settleAll(round);
        requireEnded(round);
        uint256 pay = 3 * UNITS * PRICE;
        vm.assertEq(_wealth(owner, workers[0]), before + pay - FRAUD_SLASH, "slashed");
        vm.assertEq(registry.nodeOf(workers[0]).bond, 8 * BOND_PER_JOB - FRAUD_SLASH);
    }

    /// An accomplice appeals against every acceptance of a rival and hides nothing: it pays, the others do not.
    function test_appealsAgainstHonestWorkCostTheAppellantAlone() public {
        uint256 bonds = _jurorsBonds();
        uint256 round = judged(Choice.Accept);
        uint256 before = credits.balanceOf(appellant);
        tried(appealed(round), Choice.Accept);
        settleAll(round);
        requireEnded(round);
        vm.assertEq(before - credits.balanceOf(appellant), APPEAL_BOND + SEATS * JUROR_FEE, "the appellant");
        vm.assertEq(_jurorsBonds(), bonds, "jurors");
        vm.assertEq(credits.balanceOf(ownerNamed("worker", 0)), 4 * UNITS * PRICE, "the worker");
        vm.assertEq(market.runOf(run).escrow, ESCROW - 8 * UNITS * PRICE - 3 * JUROR_FEE, "the requester");
    }
}
