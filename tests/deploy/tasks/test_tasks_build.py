"""``assize tasks build``: sources in, one file out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.tasks import sources
from deploy.tasks.prompts import ASKS_FOR
from protocol.tensor.chat import with_chat
from protocol.tensor.directory import tokenizer_hash
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.tasks import TaskFile, decode_tasks, tasks_root
from tests.bench.tasks_data import write
from tests.conftest import ROOT
from tests.coordinator.swarm import RULES
from tests.deploy.tasks.conftest import Tasks, lines, make_model, sums
from tests.typing_in import Typed

SMOLLM2 = ROOT / "models" / "smollm2"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return lines(tmp_path / "sums.jsonl", sums(40))


def opened(path: Path) -> TaskFile:
    return decode_tasks(path.read_bytes())


def loaded(model: Path) -> Model:
    tokenizer = load_tokenizer(model)
    return Model(None, tokenizer, tokenizer.eos_token_id)


def refused(typed: Typed) -> str:
    assert typed.code == 2, (typed.out, typed.err)
    told = typed.err.strip().splitlines()
    assert len(told) == 1, told
    return told[0].removeprefix("assize: ")


def test_a_persons_file_becomes_tasks_with_prompts_answers_and_a_root(
    tasks: Tasks, model: Path, own: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tasks.parquet"
    told = tasks("build", f"{own}:3", "--model", model, "--out", out, "--json").json
    file, held = opened(out), loaded(model)
    assert told["root"] == "0x" + tasks_root(out.read_bytes()).hex()
    (source,) = told["sources"]
    assert (source["source"], source["weight"], source["read"], source["kept"]) == ("sums", 3, 40, 40)
    assert source["left_out"] == {}
    assert source["held_out"] == told["held_out"] == int(file.held_out.sum())
    assert [(each.name, each.weight) for each in file.header.sources] == [("sums", 3)]
    assert file.header.tokenizer == tokenizer_hash(model)
    rules = with_chat(RULES, held.tokenizer)
    for row, given in enumerate(sums(40)):
        assert file.prompt_tokens(row) == held.prompt_tokens(given["question"], rules)
        assert (file.answer(row), file.row(row).verifier, file.row(row).budget_at) == (given["answer"], "exact", -1)
    lengths = sorted(len(file.prompt_tokens(row)) for row in range(40))
    assert source["prompt_tokens"] == [lengths[0], (lengths[19] + lengths[20]) // 2, lengths[-1]]


def test_the_same_sources_make_the_same_bytes_whatever_format_they_have(
    tasks: Tasks, model: Path, own: Path, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist(sums(40)), tmp_path / "b.parquet")
    (tmp_path / "c.json").write_text(json.dumps(sums(40)))
    made = []
    for number, place in enumerate((own, own, tmp_path / "b.parquet", tmp_path / "c.json")):
        out = tmp_path / f"{number}.parquet"
        assert tasks("build", f"sums={place}", "--model", model, "--out", out).code == 0
        made.append(out.read_bytes())
    assert len(set(made)) == 1


def test_white_space_around_an_own_question_stays_as_in_a_runs_chat(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    place = lines(tmp_path / "x.jsonl", [{"question": "  2 + 2 =\n", "answer": "4"}])
    out = tmp_path / "tasks.parquet"
    assert tasks("build", place, "--model", model, "--out", out, "--held-out", 0).code == 0
    held = loaded(model)
    assert opened(out).prompt_tokens(0) == held.prompt_tokens("  2 + 2 =\n", with_chat(RULES, held.tokenizer))


def test_a_length_budget_has_its_place_after_the_question(tasks: Tasks, model: Path, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks.parquet"
    more = ("--length-targets", "64,128", "--length-penalty", 0.001)
    assert tasks("build", own, "--model", model, "--out", out, *more).code == 0
    file, held = opened(out), loaded(model)
    assert [target.length for target in file.header.targets] == [64, 128]
    assert file.header.penalty == 0.001
    for target in file.header.targets:
        assert target.tokens == held.text_tokens(ASKS_FOR.format(target.length))
    tokens, at = file.prompt_tokens(7), int(file.budget_at[7])
    asked = (*tokens[:at], *file.header.targets[1].tokens, *tokens[at:])
    assert held.prompt_text(asked) == (
        "<|im_start|>user\nWhat is 7 + 8?\n\nThink for 128 tokens before giving a response.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_chats_and_a_system_message_go_through_the_template(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hi (the message)"}, {"role": "assistant", "content": "Yes?"}]
    rows = [
        {"prompt": [*chat, {"role": "user", "content": "1 + 2?"}], "answer": "3"},
        {"prompt": [{"role": "system", "content": "Own."}, {"role": "user", "content": "1 + 3?"}], "answer": "4"},
    ]
    out, held = tmp_path / "tasks.parquet", loaded(model)
    place = lines(tmp_path / "x.jsonl", rows)
    assert tasks("build", place, "--model", model, "--out", out, "--system", "Add up.", "--held-out", 0).code == 0
    file = opened(out)
    system: list[dict[str, str]] = [{"role": "system", "content": "Add up."}]
    for row, messages in enumerate((system + rows[0]["prompt"], rows[1]["prompt"])):  # type: ignore[operator]
        text = held.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert held.prompt_text(file.prompt_tokens(row)) == text


def test_without_a_template_or_where_asked_the_text_stays_as_it_is(
    tasks: Tasks, model: Path, plain_model: Path, own: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tasks.parquet"
    for directory, more in ((model, ("--plain",)), (plain_model, ())):
        assert tasks("build", own, "--model", directory, "--out", out, *more).code == 0
        assert loaded(directory).prompt_text(opened(out).prompt_tokens(3)) == "What is 3 + 4?"
    told = refused(tasks("build", own, "--model", plain_model, "--out", out, "--system", "Add."))
    assert told == "invalid --system: expected a tokenizer with a chat template, and no --plain"


def test_rows_keep_their_weight_and_their_side(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    rows = [{**row, "weight": index, "split": "test" if index % 2 else "train"} for index, row in enumerate(sums(6))]
    out = tmp_path / "tasks.parquet"
    place = lines(tmp_path / "x.jsonl", rows)
    assert tasks("build", place, "--model", model, "--out", out, "--held-out", 0.5).code == 0
    file = opened(out)
    assert file.weight.tolist() == list(range(6))
    assert file.held_out.tolist() == [0, 1] * 3


def test_a_question_is_on_the_same_side_whatever_comes_with_it(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    sides = []
    for first, count in ((0, 60), (30, 60)):
        place, out = lines(tmp_path / "x.jsonl", sums(count, first)), tmp_path / f"{first}.parquet"
        assert tasks("build", place, "--model", model, "--out", out, "--held-out", 0.5).code == 0
        sides.append(opened(out).held_out.tolist())
    assert sides[0][30:] == sides[1][:30]
    assert 10 < sum(sides[0]) < 50


def test_questions_of_an_earlier_source_are_dropped(tasks: Tasks, model: Path, own: Path, tmp_path: Path) -> None:
    twice = lines(tmp_path / "twice.jsonl", [*sums(10, 35), *sums(2, 35)])
    out = tmp_path / "tasks.parquet"
    told = tasks("build", own, twice, "--model", model, "--out", out, "--json").json
    assert [(source["duplicates"], source["kept"]) for source in told["sources"]] == [(0, 40), (7, 5)]
    assert opened(out).source.tolist() == [0] * 40 + [1] * 5


def test_long_and_repetitive_prompts_are_left_out_and_counted(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    rows = [*sums(5), {"question": "again and again " * 100, "answer": "x"}, {"question": "q" * 400, "answer": "x"}]
    place, out = lines(tmp_path / "x.jsonl", rows), tmp_path / "tasks.parquet"
    told = tasks("build", place, "--model", model, "--out", out, "--max-prompt-tokens", 100, "--json").json
    assert told["sources"][0]["left_out"] == {"it repeats itself": 1, "a prompt that is too long": 1}
    table = tasks("build", place, "--model", model, "--out", out, "--max-prompt-tokens", 100).out
    assert "1 it repeats itself, 1 a prompt that is too long" in table
    assert told["root"] in table


def test_a_limit_takes_the_first_tasks_of_each_source(tasks: Tasks, model: Path, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks.parquet"
    words = ("build", own, "reasoning-gym/chain_sum", "--model", model, "--out", out, "--limit", 8, "--json")
    assert [source["kept"] for source in tasks(*words).json["sources"]] == [8, 8]
    assert opened(out).answer(7) == "15"


def test_rows_with_another_solve_rate_are_left_out(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "problem_id": str(number),
            "task_type": "verifiable_math",
            "prompt": f"What is {number} squared?",
            "verification_info": json.dumps({"ground_truth": str(number**2)}),
            "solve_rate_qwen_r1_distill_7b": number / 10,
        }
        for number in range(11)
    ]
    place, out = lines(tmp_path / "x.jsonl", rows), tmp_path / "tasks.parquet"
    words = ("--model", model, "--out", out, "--solve-rate", "0.2:0.5")
    told = tasks("build", place, *words, "--held-out", 0, "--json").json
    assert (told["tasks"], told["sources"][0]["left_out"]) == (4, {"another solve rate": 7})
    unrated = lines(tmp_path / "y.jsonl", sums(3))
    said = refused(tasks("build", unrated, *words))
    assert said == "invalid --solve-rate: expected a source with a column of solve rates"


def test_generated_tasks_differ_by_seed_and_follow_their_configuration(
    tasks: Tasks, model: Path, tmp_path: Path
) -> None:
    made = []
    for seed in (1, 2, 1):
        out = tmp_path / f"{len(made)}.parquet"
        place = "reasoning-gym/chain_sum?min_terms=2&max_terms=2&size=20:7"
        told = tasks("build", place, "--model", model, "--out", out, "--seed", seed, "--json").json
        assert (told["sources"][0]["source"], told["sources"][0]["weight"]) == ("chain_sum", 7)
        made.append(out.read_bytes())
    assert made[0] == made[2] != made[1]
    row = opened(out).row(0)
    info = json.loads(row.info)
    assert (row.verifier, info["dataset"], info["entry"]["metadata"]["num_terms"]) == ("reasoning-gym", "chain_sum", 2)
    assert info["entry"]["answer"] == row.answer


def test_a_dataset_is_read_by_the_hubs_package(
    tasks: Tasks, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "someone" / "squares").mkdir(parents=True)
    rows = [
        {
            "problem": f"What is {number} squared?",
            "answer": str(number**2),
            "question_type": "math-word-problem",
            "problem_is_valid": "Yes" if number else "No",
            "solution": "long" * 100,
        }
        for number in range(9)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "someone" / "squares" / "train.parquet")
    monkeypatch.chdir(tmp_path)
    told = tasks("build", "hf/someone/squares@train:5", "--model", model, "--out", "tasks.parquet", "--json").json
    (source,) = told["sources"]
    assert (source["source"], source["weight"], source["kept"]) == ("squares", 5, 8)
    assert source["left_out"] == {"marked invalid": 1}
    wrong = refused(tasks("build", "hf/someone/squares@night", "--model", model, "--out", "tasks.parquet"))
    assert wrong.startswith("cannot read hf/someone/squares@night: Bad split: night")


def test_a_package_that_is_missing_is_named(
    tasks: Tasks, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("datasets", "reasoning_gym"):
        monkeypatch.setitem(sys.modules, module, None)
    told = refused(tasks("build", "hf/someone/squares", "--model", model, "--out", tmp_path / "x"))
    assert told == "the package datasets is not installed: pip install datasets"
    told = refused(tasks("build", "reasoning-gym/chain_sum", "--model", model, "--out", tmp_path / "x"))
    assert told == "the package reasoning-gym is not installed: pip install reasoning-gym"


def test_datasets_in_their_own_shapes_are_built_together(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    numina, synthetic = write(tmp_path, 600)
    out = tmp_path / "tasks.parquet"
    first, second = tasks("build", numina, f"{synthetic}:2", "--model", model, "--out", out, "--json").json["sources"]
    assert set(first["left_out"]) == {"a proof", "marked invalid", "no answer"}
    assert set(second["left_out"]) == {"another type of task", "another language than Python"}
    for source in (first, second):
        assert source["read"] == 600 == source["kept"] + source["duplicates"] + sum(source["left_out"].values())
        assert source["duplicates"] > 5
    assert opened(out).verifiers == ["choice", "code", "math"]


GOOD = json.dumps({"question": "2+2=", "answer": "4"}).encode()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.jsonl", GOOD + b"\n" + b'{"question": "1+1="}\n', "invalid row 2 of x.jsonl: expected an answer"),
        ("x.jsonl", b"\n\n{broken\n", "invalid row 3 of x.jsonl: expected JSON"),
        ("x.jsonl", b"[" * 100_000, "invalid row 1 of x.jsonl: expected JSON"),
        ("x.jsonl", b'["a"]\n', "invalid row 1 of x.jsonl: expected an object"),
        ("x.jsonl", GOOD + b"\n\xff\xfe\n", "invalid row 2 of x.jsonl: expected UTF-8"),
        ("x.jsonl", GOOD[:-1] + b"9" * 5000 + b"}", "invalid row 1 of x.jsonl: expected JSON"),
        ("x.jsonl", b"", "the source x has no task to train on: 0 read"),
        ("x.jsonl", b'{"a": 1}', "invalid row 1 of x.jsonl: expected question and answer, or the columns of a known"),
        ("x.jsonl", b'{"problem": "1", "answer": ""}', "no task to train on: 1 read, 1 left out (no answer)"),
        ("x.json", b"{}", "expected a JSON list of objects in UTF-8"),
        ("x.json", b"\xff", "expected a JSON list of objects in UTF-8"),
        ("x.json", b"[1]", "invalid row 1 of x.json: expected an object"),
        ("x.parquet", b"garbage", "expected Parquet"),
        ("x.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1", "expected Parquet"),
        ("x.csv", b"question,answer", "expected a name that ends in .jsonl, .json, .parquet"),
        ("x.jsonl", json.dumps({"question": "q", "answer": "a", "weight": 0}).encode(), "no task to train on: 1 read"),
    ],
)
def test_a_malformed_file_is_refused_in_a_sentence_and_nothing_is_written(
    tasks: Tasks, model: Path, tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    told = refused(tasks("build", tmp_path / name, "--model", model, "--out", tmp_path / "out", "--held-out", 0))
    assert why in told
    assert not (tmp_path / "out").exists()


def test_parquet_without_questions_is_refused(tasks: Tasks, model: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"colour": ["red"]}), tmp_path / "x.parquet")
    told = refused(tasks("build", tmp_path / "x.parquet", "--model", model, "--out", tmp_path / "out"))
    assert told.endswith("expected the columns question and answer")


def test_a_huge_line_is_refused_before_it_is_read(
    tasks: Tasks, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_LINE", 1000)
    (tmp_path / "x.jsonl").write_bytes(GOOD + b"\n" + b"x" * 2000)
    told = refused(tasks("build", tmp_path / "x.jsonl", "--model", model, "--out", tmp_path / "out"))
    assert told == "invalid row 2 of x.jsonl: expected at most 1000 bytes"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("SUMS:0",), "invalid weight 0 of the source sums: expected 1 to 65535"),
        (("SUMS:65536",), "invalid weight 65536 of the source sums: expected 1 to 65535"),
        (("SUMS:two",), "invalid weight two of the source sums: expected 1 to 65535"),
        (("SUMS", "SUMS"), "the name sums is taken, give another as NAME="),
        (("Sums=SUMS",), "invalid name 'Sums' of a source"),
        (("nothing.jsonl",), "expected a file, reasoning-gym/DATASET or hf/OWNER/NAME"),
        ((":3",), "expected [NAME=]PATH[:WEIGHT]"),
        (("hf/someone",), "expected hf/OWNER/NAME[/SUBSET][@SPLIT]"),
        (("reasoning-gym/nonsense",), "cannot make tasks of reasoning-gym/nonsense: Dataset 'nonsense' not registered"),
        (("reasoning-gym/chain_sum?min_terms=0",), "min_terms must be positive"),
        (("reasoning-gym/chain_sum?colour=red",), "unexpected keyword argument 'colour'"),
        (("reasoning-gym/chain_sum?size",), "expected reasoning-gym/DATASET?NAME=VALUE&NAME=VALUE"),
        (("reasoning-gym/coin_flip?size=2",), "invalid row 1 of reasoning-gym/coin_flip?size=2: invalid dataset"),
        (("SUMS", "--held-out", 0.6), "invalid --held-out 0.6: expected 0 to 0.5"),
        (("SUMS", "--length-targets", "64,many"), "invalid --length-targets 64,many: expected at most 16 lengths"),
        (("SUMS", "--length-targets", "64,64"), "each once"),
        (("SUMS", "--length-targets", "0"), "invalid --length-targets 0"),
        (("SUMS", "--length-penalty", 0.1), "invalid --length-penalty without --length-targets"),
        (("SUMS", "--solve-rate", "0.5:0.2"), "invalid --solve-rate 0.5:0.2: expected MIN:MAX from 0 to 1"),
        (("SUMS", "--solve-rate", "half"), "invalid --solve-rate half"),
        (
            ("SUMS", "--out", "/nowhere/at/all"),
            "invalid --out /nowhere/at/all: expected a file in a folder",
        ),
        (("SUMS", "--model", "/nowhere"), "invalid model directory /nowhere: it does not exist"),
        (("SUMS", "--max-prompt-tokens", 3), "no task to train on: 40 read, 40 left out (a prompt that is too long)"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    tasks: Tasks, model: Path, own: Path, tmp_path: Path, words: tuple[object, ...], why: str
) -> None:
    typed = [str(word).replace("SUMS", str(own)) for word in words]
    usual = [] if "--model" in typed else ["--model", model]
    usual += [] if "--out" in typed else ["--out", tmp_path / "out"]
    assert why in refused(tasks("build", *typed, *usual))


@pytest.mark.parametrize(
    ("template", "why"),
    [("no message", "does not have a user's message once"), ("{% if %}", "does not render"), ("twice", "once")],
)
def test_a_template_that_loses_the_message_is_refused(
    tasks: Tasks, own: Path, tmp_path: Path, template: str, why: str
) -> None:
    twice = "{{ messages[0].content }}{{ messages[0].content }}"
    model = make_model(tmp_path / "model", twice if template == "twice" else template)
    assert why in refused(tasks("build", own, "--model", model, "--out", tmp_path / "out"))


@pytest.mark.skipif(not SMOLLM2.exists(), reason="make model-smollm2 makes it")
def test_a_pretrained_models_prompts_are_those_of_a_chat(tasks: Tasks, own: Path, tmp_path: Path) -> None:
    out, held = tmp_path / "tasks.parquet", loaded(SMOLLM2)
    assert tasks("build", own, "--model", SMOLLM2, "--out", out).code == 0
    rules = with_chat(RULES, held.tokenizer)
    for row, given in enumerate(sums(40)):
        assert opened(out).prompt_tokens(row) == held.prompt_tokens(given["question"], rules)
