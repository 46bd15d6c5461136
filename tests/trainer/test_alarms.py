"""Alarms: what is raised, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.alarms import RECENT, StepFigures, alarms

FINE = StepFigures(skipped=0, entropy=1.0, reward=0.5, groups=16, groups_stale=1, waited_seconds=1.0, seconds=4.0)
RUN = [FINE] * 2 * RECENT


def test_a_healthy_run_raises_nothing() -> None:
    assert alarms([]) == {}
    assert alarms([FINE]) == {}
    assert alarms(RUN) == {}


def test_a_gradient_that_was_not_finite_is_said_at_once() -> None:
    assert alarms([replace(FINE, skipped=2)]) == {
        "not_finite": "2 optimizer steps were skipped: the gradient was not finite"
    }
    assert alarms([replace(FINE, skipped=2), FINE]) == {}


@pytest.mark.parametrize(
    ("changed", "name", "words"),
    [
        ({"entropy": 0.05}, "entropy", "fell to 0.05 nats a token, from 1"),
        ({"reward": 0.39}, "reward", "fell to 0.39 over 5 steps, from 0.5"),
        ({"groups_stale": 8}, "stale", "33% of the groups came too late"),
        ({"waited_seconds": 3.5}, "starved", "88% of the time went into waiting"),
    ],
)
def test_what_lasts_for_some_steps_is_said_with_its_figures(changed: dict[str, float], name: str, words: str) -> None:
    wrong = replace(FINE, **changed)  # type: ignore[arg-type]
    found = alarms([*RUN, *[wrong] * RECENT])
    assert set(found) == {name}
    assert words in found[name]
    assert alarms([*RUN, wrong]) == {}, "one step is chance"
    assert alarms([wrong] * (2 * RECENT - 1)) == {}, "too early to tell"


def test_a_reward_is_held_against_the_best_of_the_run() -> None:
    better = [replace(FINE, reward=reward) for reward in (0.5, 0.9, 0.9, 0.9, 0.9, 0.9)]
    assert set(alarms([*RUN, *better, *RUN])) == {"reward"}
