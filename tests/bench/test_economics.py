"""The economics bench: every strategy for a few rounds, and how its figures are worked out."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from statistics import mean, stdev

import pytest

from protocol.chain.structs import Role, State
from protocol.wire.assignments import Listing, pack_assignments
from tests.bench.economics.__main__ import (
    below,
    beyond,
    open_to,
    own_jury,
    show,
    starving,
    summary,
    unexpected,
)
from tests.bench.economics.estimates import estimate
from tests.bench.economics.histories import Played, history
from tests.bench.economics.playing import play
from tests.bench.economics.strategies import (
    STRATEGIES,
    ColludingMajority,
    EvictingNewcomer,
    HidingCoordinator,
    HidingCoordinatorWithStores,
    HidingFromTheTrial,
    HidingFromTheTrialWithStores,
    Honest,
    Lazy,
    LazyTrapped,
    MatchingSquatter,
    ServedPoison,
    SilentThird,
    SlotSquatter,
    WithholdingAfterTheDraw,
    WorkingAtTheBound,
)
from tests.bench.economics.strategy import Strategy
from tests.bench.economics.terms import JOB_PAY, JOBS, JOBS_PER_WORKER, PROTOCOL, RUN, TOKEN, VALIDATORS
from tests.bench.economics.world import JURORS, PROVIDERS, World
from tests.model.parties import COORDINATOR, REQUESTER, address_of

SEEDS, ROUNDS = (1, 2), 3


def played(strategy: Strategy) -> list[Played]:
    return [each for seed in SEEDS for each in history(strategy, seed, ROUNDS)]


@pytest.fixture(scope="module")
def results() -> dict[str, list[Played]]:
    return {name: played(strategy) for name, strategy in STRATEGIES.items()}


@pytest.mark.parametrize("name", STRATEGIES)
def test_below_a_majority_a_strategy_shows_no_hole_but_the_one_it_names(
    results: dict[str, list[Played]], name: str
) -> None:
    """Nobody honest loses or is unpaid, nobody gains unearned, no fraud is unpunished, unless the strategy says why."""
    if not STRATEGIES[name].hole:
        assert unexpected({name: results[name]}) == []
    elif below(results[name]):
        assert open_to(results[name]), f"{name} finds nothing open any more: drop its hole"


def test_a_history_is_the_same_every_time() -> None:
    assert list(history(WorkingAtTheBound(), 1, 2)) == list(history(WorkingAtTheBound(), 1, 2))


def test_a_silent_third_delays_rounds_but_decides_none(results: dict[str, list[Played]]) -> None:
    assert all(each.decided for each in results[SilentThird.name])
    assert sum(each.payoff["holder"] for each in results[SilentThird.name]) < 0


def test_a_lazy_jurors_seat_leaves_more_than_an_honest_one_unless_faults_are_planted(
    results: dict[str, list[Played]],
) -> None:
    class Trapped(LazyTrapped):
        traps = JOBS_PER_WORKER / JOBS

    found = json.loads(json.dumps(summary(results | {LazyTrapped.name: played(Trapped())})))
    assert found["lazy_minus_honest"] < 0 < found["lazy_minus_honest_by_strategy"][Lazy.name]


def test_fraud_that_is_hidden_in_time_goes_unpunished_and_unpaid(results: dict[str, list[Played]]) -> None:
    below = [each for each in results[WithholdingAfterTheDraw.name] if not each.captured]
    assert sum(each.escaped for each in below) > 0
    assert sum(each.undeserved for each in below) == 0


def test_fraud_that_is_shown_to_a_part_of_the_trial_is_punished(results: dict[str, list[Played]]) -> None:
    below = [each for each in results[HidingFromTheTrialWithStores.name] if not each.captured]
    assert sum(each.escaped for each in below) == 0


def test_a_file_that_one_more_store_has_cannot_be_hidden(results: dict[str, list[Played]]) -> None:
    assert sum(each.unserved for each in results[HidingCoordinator.name]) == 0
    assert sum(each.unserved for each in results[HidingCoordinatorWithStores.name]) > 0
    assert sum(each.escaped for each in results[HidingFromTheTrial.name] if not each.captured) == 0


def test_a_squatter_keeps_newcomers_out_only_by_matching_what_each_posts(results: dict[str, list[Played]]) -> None:
    assert sum(each.refused_newcomers for each in results[SlotSquatter.name]) == 0
    assert sum(each.refused_newcomers for each in results[MatchingSquatter.name]) == len(SEEDS) * ROUNDS


def test_honest_validators_that_are_evicted_while_a_round_goes_on_lose_nothing(
    results: dict[str, list[Played]],
) -> None:
    assert sum(each.losses for each in results[EvictingNewcomer.name]) == 0
    world, strategy = World(1, EvictingNewcomer().held), EvictingNewcomer()
    strategy.begins(world)
    for _ in range(ROUNDS):
        assert play(world, strategy).state is State.SETTLED
    evicted = [before for before, _ in world.protocol.registry.before.values()]
    assert [world.protocol.registry.nodes[node].owner for node in evicted] == JURORS[:ROUNDS]


def test_what_a_captured_committee_takes_is_counted_apart(results: dict[str, list[Played]]) -> None:
    captured = beyond(results[ColludingMajority.name])
    assert max(each.undeserved for each in captured) == JOBS_PER_WORKER * JOB_PAY


def test_rounds_that_follow_a_captured_one_are_counted_apart() -> None:
    for seed in range(1, 9):
        flags = [each.captured for each in history(ServedPoison(), seed, 4)]
        assert flags == sorted(flags)


@pytest.mark.parametrize("short", [0, 1])
def test_a_jury_of_ones_own_and_starving_a_run_take_as_many_validators_as_said(short: int) -> None:
    for needed, own_run in ((own_jury(VALIDATORS), True), (starving(VALIDATORS), False)):
        world, joiners = World(1), [address_of(f"joiner {i}") for i in range(needed - short)]
        for i, joiner in enumerate(joiners):
            world.do(joiner, "token", "drip", joiner, PROTOCOL.registry.validator_bond)
            assert world.register(joiner, Role.VALIDATOR, f"joiner {i}", 1) is None
        world.wait(world.now + PROTOCOL.registry.activation_delay)
        run = world.open_run(replace(RUN, trainer=COORDINATOR), REQUESTER, 1000 * TOKEN, joiners)
        world.do(PROVIDERS[0], "market", "join", run, VALIDATORS + 1, RUN.rules_hash)
        jobs, tried = pack_assignments([Listing(VALIDATORS + 1, 1)]), run if own_run else 1
        opened = world.attempt(COORDINATOR, "rounds", "open", tried, 0, 0, jobs)
        assert (opened is None) == (own_run != bool(short))


def test_the_interval_of_independent_rounds_is_the_usual_one(results: dict[str, list[Played]]) -> None:
    values = [3.0, 4.0, 8.0, 9.0]
    apart = [replace(results[Honest.name][0], seed=seed, losses=value) for seed, value in enumerate(values)]
    found = estimate(apart, lambda each: each.losses)
    assert found.mean == pytest.approx(mean(values))
    assert found.half == pytest.approx(1.96 * stdev(values) / sqrt(len(values)))


def test_the_last_line_has_what_decides(results: dict[str, list[Played]], capsys: pytest.CaptureFixture[str]) -> None:
    show(results)
    shown = capsys.readouterr().out
    assert all(name.split()[0] in shown for name in STRATEGIES)
    found = json.loads(json.dumps(summary(results)))
    assert {"honest_losses_wei", "profitable", "lazy_minus_honest", "trap_rate", "capture", "decided"} <= found.keys()
    assert set(found["lost_by_honest_wei"]) == set()
    assert found["profitable"] == []
    assert found["decided"] == 1.0
