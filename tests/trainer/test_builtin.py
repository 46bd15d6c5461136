"""The built-in model is made from its seed, and any Hugging Face loader reads it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.model import load_model
from trainer.builtin import END, PAD, UNKNOWN, Warmup, character_tokenizer, make_builtin

SMALL = Warmup(hidden=32, intermediate=32, steps=3, batch=8)


def _weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_model(directory, torch.float32).weights()


def test_same_seed_makes_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        make_builtin(tmp_path / name, seed, Arithmetic(2), SMALL)
    one, two, three = (_weights(tmp_path / name) for name in ("one", "two", "three"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], three[name]) for name in one)


def test_making_it_leaves_the_global_seed_alone(tmp_path: Path) -> None:
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    make_builtin(tmp_path / "model", 1, Arithmetic(1), SMALL)
    assert torch.equal(before, torch.random.get_rng_state())


def test_hugging_face_loads_model_and_tokenizer(model_directory: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_directory, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
    assert model.config.model_type == "qwen3"
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id == 1


def test_one_character_is_one_token_and_comes_back(model_directory: Path) -> None:
    model = load_model(model_directory, torch.float32)
    arithmetic = Arithmetic(3)
    problem = arithmetic.problem(b"\x01" * 32)
    text = problem.prompt + arithmetic.working(problem, [0, 0, 0])
    tokens = model.text_tokens(text)
    assert len(tokens) == len(text)
    assert model.completion_text([*tokens, model.stop_token], (model.stop_token,)) == text
    assert len(set(tokens)) == len(set(text))


def test_a_character_outside_the_alphabet_is_one_unknown_token() -> None:
    tokenizer = character_tokenizer("ab")
    assert tokenizer.encode("aéb" + END, add_special_tokens=False) == [3, 2, 4, 1]


def test_warm_up_learns_the_form_of_the_working(tmp_path: Path) -> None:
    losses: list[float] = []
    warmup = Warmup(hidden=32, intermediate=64, steps=40, batch=16, rate=1e-2)
    make_builtin(tmp_path / "model", 1, Arithmetic(1), warmup, lambda step, loss: losses.append(loss))
    assert losses[0] > 2.5
    assert losses[-1] < 1.5


def test_only_a_stop_token_at_the_end_is_left_out_of_the_text(model_directory: Path) -> None:
    """Left out inside an answer, a pad or an unknown would join the digits around it to a right answer."""
    model = load_model(model_directory, torch.float32)
    pad, unknown = model.tokenizer.convert_tokens_to_ids([PAD, UNKNOWN])
    four, two = model.text_tokens("42")
    stops = (model.stop_token,)
    assert model.completion_text([four, two, model.stop_token], stops) == "42"
    assert model.completion_text([four, two, model.stop_token], ()) == "42" + END
    for inside in (pad, unknown, model.stop_token):
        assert model.completion_text([four, inside, two, model.stop_token], stops) not in ("42", "4", "2")
    for last in (pad, unknown):
        assert model.completion_text([four, two, last], stops) != "42"
    assert model.completion_text([four, two], (two,)) == "4"
    assert model.completion_text([], stops) == ""


def test_an_answer_with_a_pad_inside_earns_nothing(model_directory: Path) -> None:
    model, arithmetic = load_model(model_directory, torch.float32), Arithmetic(3)
    problem = arithmetic.problem(b"\x01" * 32)
    tokens = list(model.text_tokens(arithmetic.working(problem, [0, 0, 0])))
    pad = model.tokenizer.convert_tokens_to_ids(PAD)
    spoilt = [*tokens[:-1], pad, tokens[-1], model.stop_token]
    assert arithmetic.reward(problem, model.completion_text([*tokens, model.stop_token], (model.stop_token,))) == 1.0
    assert arithmetic.reward(problem, model.completion_text(spoilt, (model.stop_token,))) == 0.0
