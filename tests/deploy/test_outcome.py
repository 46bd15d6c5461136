"""Which runs count as a success, and what they leave behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.adversaries import ADVERSARIES
from deploy.localnet.outcome import Metrics, Outcome, failures, write_report

ETHER = 10**18
GOOD = Outcome(
    accuracy_before=0.40,
    accuracy_after=0.86,
    steps=60,
    rounds=61,
    rollouts_accepted=9000,
    rollouts_trained=8000,
    rollouts_fraud=32,
    rollouts_void=0,
    honest_rollouts_void=0,
    cheat_slashed_wei=2 * ETHER,
    cheat_rollouts_trained=0,
    cheat_rounds_before_caught=0,
    honest_slashed_wei=0,
    penalties_wei=0,
    credits={"worker-1": 10**24, "cheat": 0},
    audit="ok",
    weights_received=1_000_000,
    weights_whole=4_000_000,
    weights_seconds=1.5,
    rollouts_per_second=120.5,
    wall_seconds=300.0,
    seed=1,
)


def test_a_good_run_breaks_no_rule() -> None:
    assert failures(GOOD, 60, judge_accuracy=True) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"audit": "round 3: juror 4 is owed 5"}, "juror 4 is owed 5"),
        ({"steps": 59}, "59 steps were made, not 60"),
        ({"cheat_slashed_wei": 0}, "the cheat was not slashed"),
        ({"cheat_rounds_before_caught": 2}, "2 judged rounds"),
        ({"cheat_rollouts_trained": 32}, "32 of the cheat's rollouts"),
        ({"honest_slashed_wei": 1}, "slashed 1 wei"),
        ({"accuracy_after": 0.79}, "under 0.80"),
        ({"accuracy_before": 0.60}, "under 0.30"),
    ],
)
def test_each_broken_rule_is_one_sentence(changes: dict[str, object], words: str) -> None:
    (sentence,) = failures(replace(GOOD, **changes), 60, judge_accuracy=True)  # type: ignore[arg-type]
    assert words in sentence
    assert "\n" not in sentence


@given(before=st.floats(0, 1), after=st.floats(0, 1))
def test_a_shorter_run_is_judged_by_the_same_rules_less_the_accuracy(before: float, after: float) -> None:
    outcome = replace(GOOD, accuracy_before=before, accuracy_after=after, steps=3)
    assert failures(outcome, 3, judge_accuracy=False) == []
    passes = after >= 0.80 and after - before >= 0.30
    assert (failures(outcome, 3, judge_accuracy=True) == []) == passes


def test_a_cheat_whose_work_is_void_need_not_be_slashed_but_is_not_paid_either() -> None:
    voided = replace(GOOD, cheat_slashed_wei=0, rollouts_void=64)
    assert failures(voided, 60, True, ADVERSARIES["constant-polynomial"]) == []
    (sentence,) = failures(replace(voided, rollouts_void=0), 60, True, ADVERSARIES["constant-polynomial"])
    assert "void" in sentence
    (sentence,) = failures(replace(voided, cheat_rollouts_trained=32), 60, True, ADVERSARIES["constant-polynomial"])
    assert "trained" in sentence


def test_a_cheat_that_begins_honest_may_be_trained_on_and_a_slight_one_may_pass() -> None:
    honest_first = replace(GOOD, cheat_rollouts_trained=32, cheat_rounds_before_caught=1)
    assert failures(honest_first, 60, True, ADVERSARIES["earlier-round"]) == []
    assert failures(replace(honest_first, cheat_slashed_wei=0), 60, True, ADVERSARIES["earlier-round"])
    assert failures(replace(honest_first, cheat_slashed_wei=0), 60, True, ADVERSARIES["stale-policy"]) == []


def test_absence_penalties_are_no_failure_but_are_told() -> None:
    outcome = replace(GOOD, penalties_wei=ETHER // 10)
    assert failures(outcome, 60, judge_accuracy=True) == []
    assert json.loads(outcome.to_json())["penalties_wei"] == str(ETHER // 10)


def test_the_last_line_is_one_line_of_json_with_wei_as_strings() -> None:
    line = GOOD.to_json()
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["cheat_slashed_wei"] == str(2 * ETHER)
    assert fields["credits"] == {"worker-1": str(10**24), "cheat": "0"}
    assert (fields["steps"], fields["audit"]) == (60, "ok")


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


STEP = {"kind": "step", "version": 1, "reward": 0.4, "staleness": 0.5, "tokens": 100}
EVALUATION = {"kind": "evaluation", "version": 0, "accuracy": 0.3, "time": 1.0, "seconds": 0.5}


def test_a_line_still_being_written_is_left_for_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert Metrics.read(path) == Metrics((), ())
    whole = lines(EVALUATION, STEP)
    path.write_text(whole + '{"kind": "step", "versi')
    assert Metrics.read(path) == Metrics((STEP,), (EVALUATION,))


def test_a_report_has_figures_verdict_and_picture(tmp_path: Path) -> None:
    metrics = Metrics((STEP, STEP | {"version": 2, "reward": 0.6}), (EVALUATION,))
    write_report(tmp_path / "report", GOOD, metrics, ["the cheat was not slashed"], {"trainer": 12.5})
    assert (tmp_path / "report" / "reward.png").read_bytes().startswith(b"\x89PNG")
    told = (tmp_path / "report" / "report.md").read_text()
    assert "Broken: the cheat was not slashed." in told
    assert "| accuracy_after | 0.86 |" in told
    assert "| trainer | 12.5 |" in told
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["outcome"]["steps"] == 60
    assert report["broken"] == ["the cheat was not slashed"]
    assert [step["version"] for step in report["steps"]] == [1, 2]
