"""Units: the formula against a real forward pass, and shapes that do not parse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from protocol.errors import Rejected
from protocol.wire import units
from protocol.wire.units import ModelShape, parse_shape

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 40,
    "tie_word_embeddings": True,
}
SHAPE = ModelShape(3, 32, 4, 2, 16, 48, 40, True)


def test_shape_is_read_from_a_model_config():
    assert parse_shape(CONFIG) == SHAPE


def test_what_llama_configs_leave_out_takes_its_default():
    fewer = {"num_key_value_heads": None, "model_type": "llama"}
    config = {key: value for key, value in CONFIG.items() if key not in ("head_dim", "tie_word_embeddings")} | fewer
    assert parse_shape(config) == ModelShape(3, 32, 4, 4, 8, 48, 40, False)


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, "32", 1.5, True, 1 << 40])
def test_a_missing_or_malformed_field_is_rejected_by_name(field, value):
    with pytest.raises(Rejected, match=field):
        parse_shape(CONFIG | {field: value})


@pytest.mark.parametrize("change", [{"model_type": "mixtral"}, {"num_key_value_heads": 3}, {"tie_word_embeddings": 1}])
def test_what_the_formula_does_not_cover_is_rejected(change):
    with pytest.raises(Rejected):
        parse_shape(CONFIG | change)


@pytest.mark.parametrize(
    ("network", "configuration", "kind"),
    [
        (Qwen3ForCausalLM, Qwen3Config, "qwen3"),
        (Qwen2ForCausalLM, Qwen2Config, "qwen2"),
        (LlamaForCausalLM, LlamaConfig, "llama"),
        (MistralForCausalLM, MistralConfig, "mistral"),
    ],
)
def test_units_are_the_operations_of_a_real_decode(network, configuration, kind):
    torch.set_num_threads(1)
    sizes = CONFIG | {"model_type": kind} | ({"head_dim": None} if kind == "qwen2" else {})
    given = {name: size for name, size in sizes.items() if name != "model_type" and size is not None}
    model = network(configuration(**given, attn_implementation="eager")).eval()
    assert model.config.model_type == kind
    prompt, output, cache = 5, 4, DynamicCache(config=model.config)
    tokens = torch.zeros(1, 1, dtype=torch.long)
    counted = 0
    with torch.no_grad():
        model(tokens.expand(1, prompt - 1), past_key_values=cache)
        for _ in range(output):
            with FlopCounterMode(display=False) as counter:
                model(tokens, past_key_values=cache)
            counted += counter.get_total_flops()
    assert units.units(parse_shape(sizes), prompt, output) == counted


@given(st.integers(1, 5000), st.integers(0, 2000), st.integers(0, 2000))
def test_units_add_up_along_a_rollout(prompt, first, second):
    whole = units.units(SHAPE, prompt, first + second)
    assert whole == units.units(SHAPE, prompt, first) + units.units(SHAPE, prompt + first, second)


def test_no_output_is_no_work():
    assert units.units(SHAPE, 10, 0) == 0


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (5, -1), (1 << 40, 1 << 40)])
def test_impossible_lengths_are_rejected(prompt, output):
    with pytest.raises(Rejected):
        units.units(SHAPE, prompt, output)


def test_a_job_is_paid_at_most_what_the_run_allows():
    assert [units.capped(amount, 10) for amount in (0, 10, 11)] == [0, 10, 10]
