"""Prompts as tokens: the text as it is, or a message in the tokenizer's chat template."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from protocol.errors import Misconfigured
from protocol.tensor.chat import with_chat
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.rules import Rules
from tests.coordinator.swarm import RULES

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }} {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant {% endif %}"
)
WORDS = ["<pad>", "</s>", "<s>", "?", *"0123456789+= ", "user", "assistant"]


def _model(folder: Path, template: str | None) -> Model:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="?")
    made.add_special_tokens({"additional_special_tokens": ["<s>"]})
    made.chat_template = template
    made.save_pretrained(folder)
    loaded = load_tokenizer(folder)
    return Model(None, loaded, loaded.eos_token_id)


def _chat(folder: Path, template: str | None) -> Rules:
    return with_chat(RULES, _model(folder, template).tokenizer)


def test_a_chat_prompt_is_one_message_of_the_user_and_the_opening_of_the_answer(tmp_path: Path) -> None:
    model, rules = _model(tmp_path, TEMPLATE), _chat(tmp_path, TEMPLATE)
    assert (rules.prompt_before, rules.prompt_after) == ("<s>user ", "</s><s>assistant ")
    told = [WORDS[token] for token in model.prompt_tokens("1 + 2 =", rules)]
    assert told == ["<s>", "user", " ", "1", " ", "+", " ", "2", " ", "=", "</s>", "<s>", "assistant", " "]
    messages = [{"role": "user", "content": "1 + 2 ="}]
    theirs = model.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert list(model.prompt_tokens("1 + 2 =", rules)) == theirs
    assert [WORDS[token] for token in model.prompt_tokens("1 +", RULES)] == ["1", " ", "+"]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (None, "no chat template: set chat_template in its configuration, or leave --chat out"),
        (TEMPLATE + TEMPLATE, "a user's message 2 times: expected once"),
        ("no message", "a user's message 0 times: expected once"),
        ("{% if %}", "does not render"),
        ("{{ raise_exception('only for fun') }}", "does not render: only for fun"),
        ("x" * 5000 + TEMPLATE, "5008 characters before or after a message: expected at most 4096"),
    ],
    ids=["missing", "twice", "never", "malformed", "refusing", "long"],
)
def test_a_template_that_gives_no_prompt_is_refused_in_one_sentence(
    tmp_path: Path, template: str | None, why: str
) -> None:
    with pytest.raises(Misconfigured, match=why):
        _chat(tmp_path, template)


def test_the_rules_name_the_stop_tokens_or_else_end_of_text_is_the_only_one(tmp_path: Path) -> None:
    model = _model(tmp_path, TEMPLATE)
    assert model.stop_tokens(RULES) == (1,)
    assert model.stop_tokens(RULES.model_copy(update={"stop_tokens": (1, 2)})) == (1, 2)
