"""Prompts as tokens: the text as it is, or a message in the tokenizer's chat template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from protocol.errors import Misconfigured
from protocol.tensor.model import Model, load_tokenizer
from protocol.wire.rules import TEMPLATE_BYTES
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


def test_a_chat_prompt_is_one_message_of_the_user_and_the_opening_of_the_answer(tmp_path: Path) -> None:
    model = _model(tmp_path, TEMPLATE)
    told = [WORDS[token] for token in model.prompt_tokens("1 + 2 =", "chat")]
    assert told == ["<s>", "user", " ", "1", " ", "+", " ", "2", " ", "=", "</s>", "<s>", "assistant", " "]
    assert [WORDS[token] for token in model.prompt_tokens("1 +")] == ["1", " ", "+"]


def test_a_tokenizer_without_a_template_has_no_chat(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no chat template: set chat_template"):
        _model(tmp_path, None).prompt_tokens("1", "chat")


def test_a_template_that_asks_for_the_date_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="asks for the date"):
        _model(tmp_path, "{{ strftime_now('%d') }}" + TEMPLATE).prompt_tokens("1", "chat")


def test_a_template_sees_no_prompt_so_that_it_can_treat_none_differently(tmp_path: Path) -> None:
    model = _model(tmp_path, "{% if '1' in messages[0]['content'] %}9{% endif %}" + TEMPLATE)
    assert "9" not in [WORDS[token] for token in model.prompt_tokens("1", "chat")]


LOOP = "{% for i in range(99999) %}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("1" * (TEMPLATE_BYTES + 1) + TEMPLATE, "bytes around a message: expected at most 4096"),
        (TEMPLATE + TEMPLATE, "a user's message 2 times: expected once"),
        ("no message", "a user's message 0 times: expected once"),
        ("{% if %}", "does not render: TemplateSyntaxError"),
        ("{{ raise_exception('only for fun') }}", "does not render: only for fun"),
        ("{{ messages[0].content.__class__.__mro__ }}", "does not render: SecurityError"),
        ("{{ 1 / 0 }}", "does not render: ZeroDivisionError"),
        ("{{ 'x' * 10 ** 10 }}", "does not render: MemoryError"),
        (f"{LOOP}{LOOP}{'{% endfor %}' * 2}", "does not render: it was ended for its use of time or memory"),
    ],
    ids=["long", "twice", "never", "malformed", "refusing", "escaping", "failing", "greedy", "endless"],
)
def test_a_template_that_is_no_use_or_hostile_is_refused_in_one_sentence(
    tmp_path: Path, template: str, why: str
) -> None:
    with pytest.raises(Misconfigured, match=re.escape(why)):
        _model(tmp_path, template).prompt_tokens("1", "chat")


def test_the_rules_name_the_stop_tokens_or_else_end_of_text_is_the_only_one(tmp_path: Path) -> None:
    model = _model(tmp_path, TEMPLATE)
    assert model.stop_tokens(RULES) == (1,)
    assert model.stop_tokens(RULES.model_copy(update={"stop_tokens": (1, 2)})) == (1, 2)
