// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunTerms} from "../src/interfaces/IMarket.sol";
import {RoundsTerms, State} from "../src/interfaces/IRounds.sol";
import {Appeals, Choice} from "./Appeals.sol";

/// @title Appeals under penalties, bonds, bounties, fees and prices of every size
contract AppealTermsTest is Appeals {
    RoundsTerms private _terms =
        RoundsTerms(FRAUD_SLASH, ABSENCE_PENALTY, OVERTURN_PENALTY, APPEAL_BOND, APPEAL_BOUNTY);
    uint128 private _fee = JUROR_FEE;
    uint128 private _price = PRICE;

    function roundsTerms() internal view override returns (RoundsTerms memory) {
        return _terms;
    }

    function appealTerms() internal view override returns (RunTerms memory terms) {
        terms = super.appealTerms();
        (terms.jurorFee, terms.pricePerUnit) = (_fee, _price);
    }

    function _deployAnew(uint256 seed, uint128 fee, uint128 price) private {
        _terms.overturnPenalty = uint128(bound(seed % 1e30, 0, 2 * VALIDATOR_BOND));
        _terms.appealBond = uint128(bound((seed >> 64) % 1e30, 0, 1000 ether));
        _terms.fraudSlash = uint128(bound(seed >> 192, MAX_UNITS * uint256(PRICE), BOND_PER_JOB));
        _terms.appealBounty = uint128(bound((seed >> 128) % 1e30, 0, _terms.fraudSlash));
        _price = uint128(bound(price, 1, _terms.fraudSlash / uint256(MAX_UNITS)));
        // The escrow covers the reserve.
        _fee = uint128(bound(fee, MIN_FEE, ESCROW / 100));
        delete validators;
        delete workers;
        setUp();
        if (_terms.appealBond + 11 * uint256(_fee) > 10 * uint256(DEPOSIT)) {
            buy(appellant, _terms.appealBond + 11 * uint256(_fee));
        }
    }

    function testFuzz_moneyOfAnAppealAddsUpWhateverTheTerms(
        uint256 seed,
        uint128 fee,
        uint128 price,
        uint8 first,
        uint8 last
    ) public {
        _deployAnew(seed, fee, price);
        uint256 before = credits.balanceOf(appellant);
        uint256 round = judged(Choice(first % 3));
        uint256 appealRound = appealed(round);
        uint256 deposit = _terms.appealBond + 11 * uint256(_fee);
        vm.assertEq(before - credits.balanceOf(appellant), deposit, "deposit");
        tried(appealRound, Choice(last % 3));
        requireState(appealRound, State.Settled);
        if (first % 3 == last % 3) {
            vm.assertEq(before - credits.balanceOf(appellant), _terms.appealBond + 5 * uint256(_fee), "lost");
            vm.assertEq(credits.balanceOf(treasury), _terms.appealBond, "forfeited");
        } else {
            _requireAward(round, before, first % 3 == 2 || last % 3 == 2);
        }
        settleAll(round);
        requireEnded(round);
    }

    /// The overturned majority has paid its penalty or its bond, unless one of the verdicts is void; the appellant gains
    /// less than half of that.
    function _requireAward(uint256 round, uint256 before, bool void_) private view {
        uint256 penalty = _terms.overturnPenalty < VALIDATOR_BOND ? _terms.overturnPenalty : VALIDATOR_BOND;
        if (void_) penalty = 0;
        vm.assertEq(registry.nodeOf(jurorsOf(round)[0]).bond, VALIDATOR_BOND - penalty, "paid");
        uint256 after_ = credits.balanceOf(appellant);
        if (after_ <= before) return;
        vm.assertTrue(2 * (after_ - before) < 3 * penalty, "under half");
        vm.assertLe(after_ - before, _terms.appealBounty, "bounty");
    }
}
