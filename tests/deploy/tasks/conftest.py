"""A model's directory with a tokenizer of bytes and a few merges, a chat template, and no weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config
from typer.testing import CliRunner

from deploy.tasks.commands import app
from tests.typing_in import Typed

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
READ = "Think for a number of tokens before giving a response. What is the sum of two numbers? user assistant system"
Tasks = Callable[..., Typed]


def make_model(folder: Path, template: str | None = TEMPLATE, read: str = READ) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([read], trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special[0], pad_token=special[0])
    made.chat_template = template
    made.save_pretrained(folder)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    Qwen3Config(vocab_size=len(made), num_key_value_heads=1, head_dim=16, **size).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chatting"))


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("plain"), template=None)


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    """Runs ``assize tasks`` as a person would."""
    environment = {"ASSIZE_PROFILE": "", "HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path / "cache")}

    def run(*words: object, stdin: str | bytes = "") -> Typed:
        done = CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Typed(done.exit_code, done.stdout, done.stderr)

    return run


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sums(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1)} for n in range(first, first + count)]
