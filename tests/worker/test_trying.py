"""``assize weights fetch`` and ``verify``, and ``assize run try`` against a real chain, coordinator and origin."""

from __future__ import annotations

import json

import pytest

from tests.protocol.test_shardcast import contents
from tests.worker.farm import Farm
from tests.worker.typed import typed
from worker.answering import TriedAnswer, answer_lines


def test_a_stranger_fetches_the_model_of_a_run_and_asks_it(farm: Farm) -> None:
    run, out = farm.swarm.run, farm.directory / "mine"
    fetched = typed(farm, "weights", "fetch", "--run", run, "--out", out, "--json")
    assert fetched.code == 0, fetched.err
    told = json.loads(fetched.out)
    assert (told["version"], told["manifest_root"]) == (0, "0x" + farm.root.hex())
    assert contents(out) == contents(farm.model)

    checked = typed(farm, "weights", "verify", out, "--run", run, "--json")
    assert (checked.code, json.loads(checked.out)["verified"]) == (0, True)
    with (out / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\xff" * 4)
    (out / "more.json").write_text("{}")
    checked = typed(farm, "weights", "verify", out, "--run", run)
    assert (checked.code, checked.out) == (1, "")
    assert "more.json is not part of it; model.safetensors differs in 1 of 1 chunks" in checked.err

    asked = typed(farm, "run", "try", run, "23+48=", "--samples", 2, "--json")
    assert asked.code == 0, asked.err
    told = json.loads(asked.out)
    assert [answer["prompt"] for answer in told["answers"]] == ["023+048\n"] * 2
    assert {answer["reward"] for answer in told["answers"]} <= {0.0, 1.0}

    again = typed(farm, "run", "try", run, "a question of another kind")
    assert again.code == 0, again.err
    assert again.out.startswith(f"run {run}, version 0, greedy\na question of another kind\n")
    assert "reward" not in again.out


def test_what_cannot_be_fetched_is_one_sentence(farm: Farm) -> None:
    run, out = farm.swarm.run, farm.directory / "mine"
    for words, code, sentence in (
        (("--run", run, "--version", 7), 1, f"assize: run {run} has no version 7: its newest is 0\n"),
        (("--run", 99), 1, None),
        (("--run", 1), 2, "assize: run 1 names no coordinator on chain ('rules'): give its URL with --coordinator\n"),
        (("--run", run, "--source", "http://127.0.0.1:9"), 3, None),
        (("--run", run, "--coordinator", "http://127.0.0.1:9"), 3, None),
    ):
        done = typed(farm, "weights", "fetch", *words, "--out", out)
        assert (done.code, done.out) == (code, "")
        assert done.err.startswith("assize: ")
        assert done.err.count("\n") == 1
        assert sentence in (None, done.err)
    assert not out.exists()


def test_answers_are_shown_with_tokens_and_reward_and_cannot_steer_the_terminal() -> None:
    found = [
        TriedAnswer("023+048\n", "3+8\x1b[2J\nanswer 0071", 7, "stop", 1.0),
        TriedAnswer("023+048\n", "x", 8, "length", 0.0),
    ]
    assert answer_lines(found, 1, 12, 2) == [
        "run 1, version 12, 2 samples at the run's temperature",
        "023+048",
        "",
        "3+8\\x1b[2J",
        "answer 0071",
        "(sample 1: 7 tokens, reward 1)",
        "",
        "x",
        "(sample 2: 8 tokens, reward 0, cut off at the run's limit)",
        "",
        "mean reward 0.500",
    ]


@pytest.mark.parametrize("text", ["23+48=", "23+48", " 023 + 048 = "])
def test_sums_are_understood_as_people_type_them(text: str) -> None:
    from protocol.environments.arithmetic import Arithmetic

    problem = Arithmetic(3).typed(text)
    assert problem is not None
    assert (problem.prompt, problem.answer) == ("023+048\n", "0071")


@pytest.mark.parametrize("text", ["", "23", "1234+1=", "2+-3=", "2*3=", "２+３="])
def test_other_texts_are_no_sums(text: str) -> None:
    from protocol.environments.arithmetic import Arithmetic

    assert Arithmetic(3).typed(text) is None
