"""``assize tasks show`` and ``assize tasks try``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.environments.verifiers.sandbox import has_sandbox
from protocol.wire.tasks import tasks_root
from tests.deploy.tasks.conftest import Tasks, lines, make_model, sums

CODE = {
    "question": "Write a function double.",
    "verifier": "code",
    "info": {"calls": [{"call": "double(4)", "result": "8"}]},
}


@pytest.fixture(scope="module")
def built(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.typing_in import typed_here

    folder = tmp_path_factory.mktemp("built")
    place = lines(folder / "own.jsonl", [*sums(30), CODE])
    words = ["tasks", "build", f"{place}:2", "reasoning-gym/chain_sum?size=10", "--model", str(model)]
    words += ["--out", str(folder / "tasks.parquet"), "--length-targets", "64,128"]
    assert typed_here(words, {"ASSIZE_PROFILE": "", "HOME": str(folder)}).code == 0
    return folder / "tasks.parquet"


def test_a_file_shows_its_sources_verifiers_and_lengths(tasks: Tasks, built: Path) -> None:
    told = tasks("show", built, "--json").json
    assert told["root"] == "0x" + tasks_root(built.read_bytes()).hex()
    assert (told["tasks"], told["length_targets"], told["length_penalty"]) == (41, [64, 128], 0.0003)
    sources = {(row["source"], row["verifier"]): row for row in told["sources"]}
    assert set(sources) == {("own", "code"), ("own", "exact"), ("chain_sum", "reasoning-gym")}
    exact = sources["own", "exact"]
    assert (exact["weight"], exact["training"] + exact["held_out"]) == (2, 30)
    least, middle, most = exact["prompt_tokens"]
    assert 0 < least <= middle <= most <= told["longest_prompt"]
    assert "chain_sum" in tasks("show", built).out


def test_tasks_are_shown_in_words_by_their_own_tokenizer_alone(
    tasks: Tasks, built: Path, model: Path, tmp_path: Path
) -> None:
    (example,) = tasks("show", built, "--model", model, "--row", 3, "--json").json["examples"]
    assert "What is 3 + 4?\n\nThink for 64 tokens before giving a response.<|im_end|>" in example["prompt"]
    assert (example["row"], example["answer"], example["verifier"]) == (3, "7", "exact")
    shown = tasks("show", built, "--model", model, "--json").json["examples"]
    assert [each["source"] for each in shown] == ["own", "own", "own"]
    assert "What is 13 + 14?" in tasks("show", built, "--model", model).out
    other = make_model(tmp_path / "other", read="entirely different words to learn merges from, such as hippopotamus")
    refused = tasks("show", built, "--model", other)
    assert refused.code == 2
    assert f"{built} is of another tokenizer than {other}'s: build it again" in refused.err


@pytest.mark.parametrize(
    ("answer", "reward"), [("so 3 + 4 makes\nthe answer is 7", 1.0), ("8", 0.0)], ids=["right", "wrong"]
)
def test_a_person_answers_a_task_and_is_told_the_reward_and_why(
    tasks: Tasks, built: Path, model: Path, answer: str, reward: float
) -> None:
    words = ("try", built, "--model", model, "--row", 3)
    told = tasks(*words, "--answer", answer, "--json").json
    assert (told["reward"], told["answer"]) == (reward, "7")
    assert told["why"]
    piped = tasks(*words, stdin=answer)
    assert piped.code == 0
    for part in ("What is 3 + 4?", str(reward), told["why"], "7"):
        assert part in piped.out


def test_a_task_is_given_by_chance(tasks: Tasks, built: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda count: count - 12)
    assert tasks("try", built, "--model", model, "--answer", "59", "--json").json["reward"] == 1.0


@pytest.mark.skipif(not has_sandbox(), reason="programs run in a sandbox")
def test_programs_and_generated_tasks_are_judged_too(tasks: Tasks, built: Path, model: Path) -> None:
    program = "def double(n):\n    return 2 * n\n"
    told = tasks("try", built, "--model", model, "--row", 30, "--answer", program, "--json").json
    assert (told["reward"], told["why"]) == (1.0, "all 1 tests pass")
    info = json.loads(tasks("show", built, "--model", model, "--row", 35, "--json").json["examples"][0]["info"])
    told = tasks("try", built, "--model", model, "--row", 35, "--answer", info["entry"]["answer"], "--json").json
    assert told["reward"] == 1.0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show", "BUILT", "--row", 1), "invalid --row without --model"),
        (("show", "BUILT", "--model", "MODEL", "--row", 41), "invalid row 41: expected 0 to 40"),
        (("show", "nothing"), "cannot read the tasks nothing: No such file or directory"),
        (("show", "GARBAGE"), "expected a file of assize tasks build"),
        (("try", "BUILT", "--model", "MODEL"), "invalid answer: expected text, or --answer TEXT"),
        (("try", "BUILT", "--model", "MODEL", "--row", 99, "--answer", "x"), "invalid row 99: expected 0 to 40"),
        (("try", "BUILT", "--model", "/nowhere"), "/nowhere has no tokenizer"),
    ],
)
def test_wrong_words_are_refused(
    tasks: Tasks, built: Path, model: Path, tmp_path: Path, words: tuple[object, ...], why: str
) -> None:
    (tmp_path / "garbage").write_bytes(b"PAR1 garbage PAR1")
    places = {"BUILT": built, "MODEL": model, "GARBAGE": tmp_path / "garbage"}
    refused = tasks(*(places.get(str(word), word) for word in words))
    assert refused.code == 2
    assert why in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_an_answer_that_is_no_text_is_refused(tasks: Tasks, built: Path, model: Path) -> None:
    refused = tasks("try", built, "--model", model, "--row", 3, stdin=b"\xff\xfe")
    assert (refused.code, "expected UTF-8" in refused.err) == (2, True)
