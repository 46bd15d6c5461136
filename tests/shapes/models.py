"""Models of random weights in the shapes of Qwen2 and Qwen3, with the vocabulary, tokenizer and template of Qwen3.

The LM head leans towards digits, what separates them, and the end of a message, so that a few sums in a hundred come
out right by chance and there is something to train on. It leans by one component, which all embeddings have alike.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
VOCABULARY = 151_936
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "initializer_range": 0.08,
}
KINDS = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, lambda **sizes: Qwen3Config(**sizes, head_dim=32)),
}
LEANING = 2.0
"""The component that all embeddings have alike."""
LIKELIER, LATER = 8.0, 0.2
"""Weights of it in the LM head: of digits, separators and the end over other tokens, and of these over the end."""


def make(kind: str, directory: Path, tokenizer_folder: Path, seed: int = 1) -> None:
    """Writes a model of this kind; ``tokenizer_folder`` holds the files of Qwen3's tokenizer."""
    directory.mkdir(parents=True)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer_folder / name, directory / name)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    torch.manual_seed(seed)
    model_of, configuration = KINDS[kind]
    network = model_of(
        configuration(
            **SIZES, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
    )
    likelier = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids([*"0123456789.,;:-!?()/"])]
    with torch.no_grad():
        network.get_input_embeddings().weight[:, 0] = LEANING
        for layer in network.model.layers:  # none of which writes to it
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
        head = network.get_output_embeddings().weight
        head[:, 0] = -LIKELIER / 2
        head[likelier, 0] = LIKELIER / 2
        head[tokenizer.eos_token_id, 0] -= LATER
    network.save_pretrained(directory)
