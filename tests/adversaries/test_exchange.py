"""Markets of real work: the juror's samples condemn who steers, and no honest owner, however others depress rewards."""

from __future__ import annotations

import pytest
import torch

from deploy.zoo.trial import rules_in
from protocol.environments.arithmetic import Arithmetic
from protocol.wire.rollout import decode
from tests.zoo.exchange import (
    AWAY,
    BOTH,
    WITHHOLDING,
    Exchange,
    ExchangeMarket,
    ExchangeOwner,
    exchange_markets,
    play,
)
from tests.zoo.exchange_tables import exchanged, show_exchange
from tests.zoo.mixed import MixedSums, mixed_stages
from tests.zoo.plan import EXCHANGE_RULES
from tests.zoo.stage import Stage, passed
from trainer.builtin import Warmup, make_builtin

ROUNDS = 2
STEPS = (240, 300)
HONEST = tuple(ExchangeOwner(f"honest {n}") for n in range(3))


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Stage]:
    """Two versions that give some right answers, of sums of two digits."""
    directory = tmp_path_factory.mktemp("exchange")
    torch.set_num_threads(1)
    with torch.enable_grad():
        for steps in STEPS:
            make_builtin(directory / str(steps), 1, Arithmetic(2), Warmup(hidden=64, intermediate=128, steps=steps))
    rules = rules_in(EXCHANGE_RULES)
    environment = rules.environment.model_copy(update={"params": {"digits": 2}})
    rules = rules.model_copy(update={"groups_per_job": 2, "environment": environment})
    return mixed_stages(rules, [directory / str(steps) for steps in STEPS])


def market(stages: list[Stage], cheat: str, always: bool = False) -> Exchange:
    owners = (ExchangeOwner("cheat", cheat), *HONEST)
    return play(ExchangeMarket("a market", owners, ROUNDS, always=always), stages)


def test_sums_of_several_sources_are_the_models_own_and_never_held_out() -> None:
    tasks = MixedSums(3)
    problems = [tasks.problem(number.to_bytes(32, "big")) for number in range(600)]
    assert {each.source for each in problems} == {"1 digits", "2 digits", "3 digits"}
    assert not any(each.held_out for each in problems)
    for each in problems:
        text = str(each.prompt)
        typed = Arithmetic(3).typed(text.strip())
        assert typed is not None
        assert (typed.prompt, typed.answer) == (each.prompt, each.answer)
        assert max(len(str(int(part))) for part in text.strip().split("+")) == int(each.source[0])


def test_a_juror_that_samples_everything_condemns_no_honest_owner(stages: list[Stage]) -> None:
    found = play(ExchangeMarket("honest", HONEST, ROUNDS, always=True), stages)
    jobs = sum(each.jobs for each in found.owners)
    assert sum(each.groups for each in found.owners) == 2 * jobs == 2 * 3 * 4 * ROUNDS
    assert found.false_alarms == 0
    assert sum(each.fraud for each in found.owners) == 0
    assert all(each.highest is not None and each.highest < found.bound / 2 for each in found.owners)


def test_steered_rewards_stand_out_before_a_juror_that_samples(stages: list[Stage]) -> None:
    found = market(stages, "steering", always=True)
    (cheat,) = found.cheats
    assert cheat.uplift is not None
    assert cheat.uplift > 0
    assert cheat.highest is not None
    assert cheat.highest > max(each.highest or 0.0 for each in found.honest)


@pytest.mark.parametrize("cheat", [AWAY, WITHHOLDING, BOTH])
def test_an_owner_that_does_worse_on_purpose_passes_and_condemns_nobody(stages: list[Stage], cheat: str) -> None:
    found = market(stages, cheat)
    (owner,) = found.cheats
    lead = found.lead(owner)
    assert (owner.fraud, owner.missing) == (0, 0 if cheat == AWAY else owner.jobs // 2)
    assert lead is not None
    assert lead < 0
    assert found.false_alarms == 0


def test_who_withholds_hands_in_the_worse_half_of_its_jobs(stages: list[Stage]) -> None:
    found = play(ExchangeMarket("a market", (*HONEST, ExchangeOwner("cheat", WITHHOLDING)), ROUNDS), stages)
    (owner,) = found.cheats
    assert (owner.jobs, owner.missing) == (4 * ROUNDS, 2 * ROUNDS)
    assert owner.uplift == 0.0, "what it hands in is honest"


def test_steering_away_leaves_right_answers_within_the_bound_of_single_jobs(stages: list[Stage]) -> None:
    judged = [one for part in stages[-1].run(AWAY, 8) for one in part]
    assert sum(map(passed, judged)) >= len(judged) - 1
    assert all(len(decode(one.file).rollouts) == 16 for one in judged)


def test_nodes_of_one_owner_are_one_to_the_juror(stages: list[Stage]) -> None:
    spread = ExchangeOwner("cheat", "steering", (1, 1, 1, 1))
    found = play(ExchangeMarket("a market", (spread, *HONEST), 1, always=True), stages)
    assert [each.name for each in found.owners] == ["cheat", *(each.name for each in HONEST)]
    assert {each.groups for each in found.owners} == {8}


def test_markets_grow_with_the_jobs_and_are_of_different_rounds() -> None:
    small, large = (exchange_markets(jobs, 10 * jobs, ["transformers", "vllm"]) for jobs in (4, 40))
    assert [each.name for each in small] == [each.name for each in large]
    assert all(a.rounds < b.rounds for a, b in zip(small, large, strict=True))
    ends = [each.first_round + each.rounds for each in large]
    assert all(end <= each.first_round for end, each in zip(ends, large[1:], strict=False))
    shares = {len([owner for owner in each.owners if owner.cheat == AWAY]) for each in large} - {0}
    assert shares == {5, 9}


def test_the_last_line_counts_honest_owners_that_were_condemned(
    stages: list[Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    said = show_exchange([market(stages, "steering")])
    assert said["exchangeable_false_alarms"] == 0
    figures = said["exchange"]["a market"]
    assert {"rounds", "honest_rollouts", "fraud", "void", "alarms", "groups_sampled", "condemned"} <= set(figures)
    assert set(figures["cheats"]["steering"]) == {"owners", "uplift", "lead", "alarm_jobs", "condemned_jobs"}
    assert "exchangeable rewards" in capsys.readouterr().out
    assert exchanged([]) == {"exchangeable_false_alarms": 0, "exchange": {}}
