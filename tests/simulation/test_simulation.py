"""Seeds of the worst days a chain can have: nothing is lost, nothing happens twice. `make sim` runs a thousand."""

from __future__ import annotations

import pytest

from protocol.chain.deployment import Deployment
from tests.simulation.running import rare_faults, run_seed
from tests.simulation.scenario import Outcome
from tests.simulation.taping import record
from tests.simulation.world import Tape

SEEDS = range(1, 11)


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tape, Deployment]:
    return record(tmp_path_factory.mktemp("tape"))


@pytest.fixture(scope="module")
def outcomes(tape: tuple[Tape, Deployment]) -> list[Outcome]:
    return [run_seed(*tape, seed) for seed in SEEDS]


@pytest.mark.slow
def test_mirror_and_ledger_end_with_what_happened(outcomes: list[Outcome]) -> None:
    assert {outcome.seed: outcome.differences for outcome in outcomes if outcome.differences} == {}


def test_every_intent_is_mined_once_or_reported_failed(outcomes: list[Outcome]) -> None:
    assert [(one.seed, one.duplicated, one.lost) for one in outcomes if one.duplicated or one.lost] == []
    assert all(one.effects + one.failed >= one.intents for one in outcomes)


def test_every_kind_of_fault_strikes_in_one_seed_of_five(outcomes: list[Outcome]) -> None:
    assert rare_faults(outcomes) == {}


def test_a_seed_that_is_run_again_ends_the_same(tape: tuple[Tape, Deployment], outcomes: list[Outcome]) -> None:
    again = run_seed(*tape, 3)
    assert again == outcomes[2]


def test_the_tape_tells_of_the_whole_life_of_a_market(tape: tuple[Tape, Deployment]) -> None:
    assert sum(len(step.logs) for step in tape[0].trunk) > 500
    assert len(tape[0].branches) > 20
    assert len({log.topics[0] for step in tape[0].trunk for log in step.logs}) > 30
