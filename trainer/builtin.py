"""The built-in model: a tiny Qwen3 with a character tokenizer, trained on the spot to imitate a flawed teacher.

The teacher writes correct working, except that each column's sum is off by one with a fixed, seeded probability.
Training on it to convergence gives an accuracy of about (1 - slip) ** columns for every seed; stopping the imitation of
a perfect teacher early would not.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from protocol.environments.arithmetic import Arithmetic

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
_RISE = 30
_WARM_UP_DOMAIN = b"assize/builtin/warm-up/1"


@dataclass(frozen=True, slots=True)
class Warmup:
    """Architecture and training of the model.

    ``slip`` is the teacher's probability of a wrong column; ``rate`` is the peak learning rate. With ``pause``, prompts
    name a number from 0 to that, and the teacher begins with as many empty lines as it likes, whatever the number.
    """

    hidden: int = 128
    intermediate: int = 256
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    steps: int = 640
    batch: int = 24
    rate: float = 4e-3
    slip: float = 0.22
    pause: int = 0


def make_builtin(
    directory: Path,
    seed: int,
    environment: Arithmetic | None = None,
    warmup: Warmup | None = None,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Writes the model of ``seed`` (0 to 2**64 - 1) and its tokenizer to ``directory`` in Hugging Face's layout."""
    environment, warmup = environment or Arithmetic(), warmup or Warmup()
    tokenizer = character_tokenizer(environment.alphabet)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(_configuration(warmup, tokenizer))
    _imitate(model, tokenizer, environment, warmup, seed, progress)
    logging.disable_progress_bar()  # the caller shows its own
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def character_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with one token per character, after pad, end-of-text and unknown."""
    vocabulary = {token: index for index, token in enumerate([PAD, END, UNKNOWN, *alphabet])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


def _configuration(warmup: Warmup, tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=warmup.hidden,
        intermediate_size=warmup.intermediate,
        num_hidden_layers=warmup.layers,
        num_attention_heads=warmup.heads,
        num_key_value_heads=warmup.key_value_heads,
        head_dim=warmup.hidden // warmup.heads,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.08,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _imitate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    environment: Arithmetic,
    warmup: Warmup,
    seed: int,
    progress: Callable[[int, float], None],
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=warmup.rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, warmup.steps))
    chance = random.Random(seed)
    model.train()
    for step in range(warmup.steps):
        tokens_BT, prompt_length = _lesson(tokenizer, environment, warmup, seed, step, chance)
        kept = tokens_BT.shape[1] - prompt_length
        logits_BTV = model(input_ids=tokens_BT[:, :-1], use_cache=False, logits_to_keep=kept).logits
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, prompt_length:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step, loss.item())
    model.eval()


def _share(step: int, steps: int) -> float:
    """Returns the fraction of the peak rate at ``step``: linear warm-up over ``_RISE`` steps, cosine decay to 0."""
    return min(1.0, (step + 1) / _RISE) * 0.5 * (1.0 + math.cos(math.pi * step / max(1, steps)))


def _lesson(
    tokenizer: PreTrainedTokenizerFast,
    environment: Arithmetic,
    warmup: Warmup,
    seed: int,
    step: int,
    chance: random.Random,
) -> tuple[torch.Tensor, int]:
    """Returns a batch of the teacher's prompts and completions, all of one length, and the prompt length."""
    texts, pause = [], "\n" * chance.randint(0, warmup.pause)
    for row in range(warmup.batch):
        label = _WARM_UP_DOMAIN + seed.to_bytes(8, "big") + (step * warmup.batch + row).to_bytes(8, "big")
        problem = environment.problem(hashlib.sha256(label).digest())
        slips = [chance.choice((-1, 1)) if chance.random() < warmup.slip else 0 for _ in range(environment.digits)]
        prompt = str(problem.prompt)
        if warmup.pause:
            prompt = prompt.rstrip("\n") + f"={chance.randint(0, warmup.pause)}\n"
        texts.append(prompt + pause + environment.working(problem, slips) + END)
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return torch.tensor(rows), len(prompt)
