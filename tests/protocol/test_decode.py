"""What a request gives does not depend on what else is in the batch, or on whose place it took.

Models have random weights; where two ways of computing may round differently, tokens are compared by margin.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor import decode as decoding
from protocol.tensor.completions import Completion, Request
from protocol.tensor.decode import decode
from protocol.wire.sampling import gumbel_noise

VOCABULARY, STOP, NEVER, CLOSE = 23, 1, -1, 1e-4
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}


def _make(kind: str) -> torch.nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SIZES)).eval()
    if kind == "qwen2":
        return Qwen2ForCausalLM(
            Qwen2Config(**{name: size for name, size in SIZES.items() if name != "head_dim"})
        ).eval()
    if kind == "qwen3, a window in the second layer":
        windows = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        return Qwen3ForCausalLM(Qwen3Config(**SIZES, **windows)).eval()
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=6)).eval()
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3)
    ).eval()


KINDS = ["llama", "qwen2", "qwen3", "qwen3, a window in the second layer", "mistral", "gpt2"]
MODELS = {kind: _make(kind) for kind in KINDS}


def _ragged(count: int, seed: int = 0, stops: tuple[int, ...] = (STOP,)) -> list[Request]:
    """Groups of up to three with one prompt, of lengths 1 to 12, and all kinds of limits and temperatures."""
    chance, found = np.random.default_rng(seed), list[Request]()
    while len(found) < count:
        prompt = tuple(chance.integers(2, VOCABULARY, chance.integers(1, 13)).tolist())
        for _ in range(chance.integers(1, 4)):
            temperature = float(chance.choice([0.0, 0.7, 1.0, 1.5]))
            found.append(Request(prompt, (len(found), seed), int(chance.integers(1, 25)), temperature, stops))
    return found[:count]


def _check(model: torch.nn.Module, request: Request, completion: Completion) -> None:
    """Each token is the seeded choice of the model's own plain pass, up to rounding; so are logprobs and states."""
    length = len(completion.output_tokens)
    tokens = torch.tensor([request.prompt_tokens + completion.output_tokens])
    with torch.inference_mode():
        output = model(input_ids=tokens[:, :-1], output_hidden_states=True, use_cache=False)
    logits_TV, hidden_TH = output.logits[0, -length:], output.hidden_states[-1][0, -length:]
    key_12 = np.array([request.noise_key], dtype=np.uint32)
    noise_TV = torch.from_numpy(gumbel_noise(key_12, range(length), VOCABULARY)[0])
    scores_TV = logits_TV + request.temperature * noise_TV
    taken_T1 = torch.tensor(completion.output_tokens)[:, None]
    assert (scores_TV.amax(-1) - scores_TV.gather(1, taken_T1)[:, 0]).max() < CLOSE
    logprobs_TV = (logits_TV / (request.temperature or 1.0)).log_softmax(-1)
    torch.testing.assert_close(completion.logprobs_T, logprobs_TV.gather(1, taken_T1)[:, 0], atol=CLOSE, rtol=0)
    torch.testing.assert_close(completion.hidden_TH.float(), hidden_TH.bfloat16().float(), atol=0.04, rtol=0.02)
    ended = completion.output_tokens[-1] in request.stop_tokens
    assert not set(request.stop_tokens) & set(completion.output_tokens[:-1])
    assert completion.finish_reason == ("stop" if ended else "length")
    assert ended or length == request.max_tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_rows", [1, 5, 512])
def test_rows_of_any_length_side_by_side_are_what_the_model_says_of_each(kind: str, max_rows: int) -> None:
    model, requests = MODELS[kind], _ragged(24)
    for request, completion in zip(requests, decode(model, requests, max_rows=max_rows), strict=True):
        _check(model, request, completion)


@given(st.integers(0, 2**32 - 1), st.integers(1, 10), st.integers(1, 5), st.sampled_from(KINDS))
@settings(max_examples=15, deadline=None)
def test_any_mix_gives_what_single_requests_give(seed: int, count: int, max_rows: int, kind: str) -> None:
    model, requests = MODELS[kind], _ragged(count, seed)
    for request, together in zip(requests, decode(model, requests, max_rows=max_rows), strict=True):
        (alone,) = decode(model, [request])
        if together.output_tokens == alone.output_tokens:
            torch.testing.assert_close(together.logprobs_T, alone.logprobs_T, atol=CLOSE, rtol=0)
        else:  # a tie within rounding, from which on both are right
            _check(model, request, together)
            _check(model, request, alone)


def test_a_row_that_ends_makes_room_for_one_that_waits() -> None:
    model, running = MODELS["qwen3"], list[int]()
    requests = [Request((2, 3, 4), (n, 0), 20 if n == 0 else 4, 1.0, (NEVER,)) for n in range(9)]
    hook = model.get_output_embeddings().register_forward_hook(lambda _, __, logits: running.append(logits.shape[1]))
    completions = decode(model, requests, max_rows=2)
    hook.remove()
    assert [len(completion.output_tokens) for completion in completions] == [20] + [4] * 8
    # Beside the long row five short ones, one after another; then two together, and the last alone.
    assert running == [2] * 24 + [1] * 4


def test_any_of_several_stop_tokens_ends_a_completion() -> None:
    model, requests = MODELS["llama"], _ragged(24, stops=(STOP, 5, 9, 11))
    completions = decode(model, requests)
    for request, completion in zip(requests, completions, strict=True):
        _check(model, request, completion)
    assert len({each.output_tokens[-1] for each in completions if each.finish_reason == "stop"}) > 1


def test_requests_of_unlike_stop_tokens_run_side_by_side() -> None:
    model = MODELS["llama"]
    mixed = zip(_ragged(8), _ragged(8, 1, (STOP, 5, 9)), _ragged(8, 2, ()), strict=True)
    requests = [request for group in mixed for request in group]
    for request, completion in zip(requests, decode(model, requests, max_rows=5), strict=True):
        _check(model, request, completion)


def test_keys_and_values_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    model, running = MODELS["llama"], list[int]()
    requests = _ragged(12)
    capacity = max(len(request.prompt_tokens) + request.max_tokens for request in requests)
    monkeypatch.setattr(decoding, "KEY_VALUE_BYTES", 3 * capacity * 2 * 2 * 2 * 8 * 4)
    hook = model.get_output_embeddings().register_forward_hook(lambda _, __, logits: running.append(logits.shape[1]))
    completions = decode(model, requests)
    hook.remove()
    assert max(running[:5]) == 3
    for request, completion in zip(requests, completions, strict=True):
        _check(model, request, completion)


def test_cancelling_ends_within_a_step() -> None:
    asked = iter(range(1000))
    with pytest.raises(Unavailable, match="cancelled"):
        decode(MODELS["llama"], _ragged(6, stops=(NEVER,)), lambda: next(asked) == 4)
    assert next(asked) == 5


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: BloomForCausalLM(BloomConfig(vocab_size=23, hidden_size=16, n_layer=1, n_head=2)), "positions"),
        (lambda: _turning("dynamic"), "rope 'dynamic'"),
        (lambda: _layered("chunked_attention"), "chunked_attention"),
    ],
)
def test_a_model_whose_rows_cannot_share_a_batch_is_refused_in_one_sentence(model: object, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        decode(model(), _ragged(2))  # type: ignore[operator]


def _turning(rope: str) -> torch.nn.Module:
    parameters = {"rope_type": rope, "rope_theta": 1e4, "factor": 2.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=parameters)).eval()


def _layered(kind: str) -> torch.nn.Module:
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    model.config.layer_types = [kind, kind]
    return model
