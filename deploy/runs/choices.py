"""A requester's choices for a new run: defaults that the contract takes, and sentences on those that it refuses. PURE.

The contract's own rules are in ``contracts/src/interfaces/IMarket.sol`` (``open``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocol.amounts import tokens
from protocol.chain.structs import MarketTerms, RoundsTerms, most_fees
from protocol.errors import Misconfigured
from protocol.node.commands.run_file import RunFileTerms
from protocol.times import spell
from protocol.wire.rules import Rules
from protocol.wire.units import ModelShape, units

SHORTEST_WINDOW_SECONDS = 60
"""Default length of a voting phase, where the protocol's minimum is shorter."""
WORK_SECONDS = 300
PAY_SHARE = 2
"""A job pays at most this part of what its fraud costs, by default; the contract's bound is the whole."""
ROUNDS_FUNDED = 20
ROUNDS_A_STEP = 1.5
"""Rounds that a step took in the runs of BENCHMARKS.md, where the last ones are not used and some teach little."""
MOST_SEATS, DRAWS = 15, 4


@dataclass(frozen=True, slots=True)
class ProtocolBounds:
    """Bounds of the deployment, and the number of validators that hold a slot."""

    market: MarketTerms
    rounds: RoundsTerms
    validators: int


def most_units(rules: Rules, shape: ModelShape, prompt_tokens: int) -> int:
    """Returns the units of a job whose rollouts all reach the token limit."""
    return rules.rollouts_per_job * units(shape, max(1, prompt_tokens), rules.max_tokens)


def usual_price(bounds: ProtocolBounds, max_units: int) -> int:
    """Returns the default price of a unit, in wei."""
    return max(1, bounds.rounds.fraud_slash // (PAY_SHARE * max_units))


def usual_committee(bounds: ProtocolBounds) -> int:
    """Returns three seats, or one where there are too few validators for that."""
    return 3 if bounds.validators >= 3 else 1


def usual_appeal_seats(bounds: ProtocolBounds, committee: int) -> int:
    """Returns two seats more than the committee has, or none where there are too few validators for both."""
    return committee + 2 if bounds.validators >= 2 * committee + 2 else 0


def usual_fee(bounds: ProtocolBounds) -> int:
    """Returns a tenth of a token, or the least that the protocol takes, in wei."""
    return max(bounds.market.min_juror_fee, 10**17)


def usual_windows(bounds: ProtocolBounds, appeal_seats: int) -> dict[str, int]:
    """Returns the default length of each phase by name, in seconds."""
    return {
        "work": WORK_SECONDS,
        "draw": SHORTEST_WINDOW_SECONDS,
        "commit": max(SHORTEST_WINDOW_SECONDS, bounds.market.min_commit_seconds),
        "reveal": max(SHORTEST_WINDOW_SECONDS, bounds.market.min_reveal_seconds),
        "challenge": SHORTEST_WINDOW_SECONDS if appeal_seats else 0,
    }


def round_cost(terms: RunFileTerms) -> int:
    """Returns the most credits that the contract reserves for a round, in wei."""
    work = terms.jobs_per_round * terms.max_units * terms.price_per_unit
    return work + most_fees(terms.committee, terms.juror_fee)


def round_seconds(terms: RunFileTerms) -> int:
    """Returns how long a round lasts if every phase takes its whole window, without redraws and appeals."""
    voting = terms.draw_seconds + terms.commit_seconds + terms.reveal_seconds
    return terms.work_seconds + voting + terms.challenge_seconds


def usual_escrow(terms: RunFileTerms) -> int:
    """Returns what some rounds cost at most, in whole tokens, in wei."""
    cost, token = ROUNDS_FUNDED * round_cost(terms), 10**18
    return -(-cost // token) * token


def check_terms(terms: RunFileTerms, bounds: ProtocolBounds) -> None:
    """Raises ``Misconfigured`` with the first bound of the contract that the terms break."""
    for broken in broken_bounds(terms, bounds):
        raise Misconfigured(broken)


def broken_bounds(terms: RunFileTerms, bounds: ProtocolBounds) -> list[str]:
    """Returns a sentence for each bound of the contract that the terms break."""
    market, pay, slash = bounds.market, terms.max_units * terms.price_per_unit, bounds.rounds.fraud_slash
    voting = DRAWS * (terms.draw_seconds + terms.commit_seconds + terms.reveal_seconds)
    longest = terms.work_seconds + voting + (terms.challenge_seconds + voting if terms.appeal_seats else 0)
    fits = terms.appeal_seats == 0 or (terms.appeal_seats % 2 and terms.committee + 2 <= terms.appeal_seats)
    checks = (
        (terms.committee % 2, f"committee {terms.committee}: expected an odd number from 1 to {MOST_SEATS}"),
        (fits, f"appeal seats {terms.appeal_seats}: expected 0 for none, or odd and at least {terms.committee + 2}"),
        (
            (terms.challenge_seconds == 0) == (terms.appeal_seats == 0),
            "challenge seconds and appeal seats: expected both or neither to be 0",
        ),
        _least("commit seconds", terms.commit_seconds, market.min_commit_seconds, str),
        _least("reveal seconds", terms.reveal_seconds, market.min_reveal_seconds, str),
        _least("juror fee", terms.juror_fee, market.min_juror_fee, tokens),
        (
            pay <= slash,
            f"price {terms.price_per_unit}wei: a job would pay {tokens(pay)}, expected at most what its fraud costs, "
            f"{tokens(slash)}: the highest price is {slash // terms.max_units}wei",
        ),
        (
            longest <= market.max_round_seconds,
            f"windows: a round with all redraws would last {spell(longest)}, expected at most "
            f"{spell(market.max_round_seconds)}",
        ),
    )
    return [sentence for holds, sentence in checks if not holds]


def _least(name: str, given: int, least: int, text: Callable[[int], str]) -> tuple[bool, str]:
    return given >= least, f"{name} {text(given)}: expected at least {text(least)}"
