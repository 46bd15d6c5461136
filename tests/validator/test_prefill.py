"""One prefill of everything gives what each sequence gives alone, and what decoding gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.completions import Request
from protocol.tensor.decode import decode
from protocol.tensor.model import Model
from protocol.wire.sampling import gumbel_noise, margin
from tests.validator.conftest import Court
from validator.judging import prefill as prefilling
from validator.judging.prefill import Completed, prefill, probe


def completed(court: Court, count: int) -> tuple[list[Completed], list[np.ndarray]]:
    """Decoded sequences of uneven prompts, and the logprobs decoding gave."""
    model, chance = court.policy.model, np.random.default_rng(2)
    requests = [
        Request(tuple(chance.integers(3, 18, 3 + n % 5).tolist()), (n, n + 1), 5 + n % 20, 1.0, (model.stop_token,))
        for n in range(count)
    ]
    found = decode(model.network, requests)
    sequences = [
        Completed(np.array(request.prompt_tokens, np.int32), np.array(done.output_tokens, np.int32), request.noise_key)
        for request, done in zip(requests, found, strict=True)
    ]
    return sequences, [done.logprobs_T.numpy() for done in found]


def test_together_is_as_alone_and_as_decoded(court: Court) -> None:
    sequences, logprobs = completed(court, 24)
    together = prefill(court.policy.model, sequences, 1.0, torch.float32)
    np.testing.assert_allclose(together.logprobs_S, np.concatenate(logprobs), atol=1e-4)
    assert together.margins_S.max() < 1e-3
    for n, sequence in enumerate(sequences):
        alone = prefill(court.policy.model, [sequence], 1.0, torch.float32)
        part = together.slice(n, n + 1)
        np.testing.assert_allclose(part.logprobs_S, alone.logprobs_S, atol=1e-5)
        np.testing.assert_allclose(part.gaps_S, alone.gaps_S, atol=1e-4)
        np.testing.assert_array_equal(part.chosen_S, sequence.output_tokens)


def test_margins_are_those_of_the_reference(court: Court) -> None:
    (sequence,), _ = completed(court, 1)
    tokens = sequence.output_tokens.copy()
    tokens[0] = (tokens[0] + 3) % 18
    lied = Completed(sequence.prompt_tokens, tokens, sequence.noise_key)
    measured = prefill(court.policy.model, [lied], 0.7, torch.float32)
    with torch.inference_mode():
        prompt = torch.tensor(sequence.prompt_tokens, dtype=torch.int64)[None]
        logits_V = court.policy.model.network(input_ids=prompt).logits[0, -1].numpy()
    noise_V = gumbel_noise(np.array([sequence.noise_key], np.uint32), range(1), len(logits_V))[0, 0]
    assert measured.margins_S[0] == pytest.approx(margin(logits_V, noise_V, 0.7, int(tokens[0])), abs=1e-4)


def test_a_broken_policy_makes_the_juror_abstain(court: Court) -> None:
    sequences, _ = completed(court, 2)
    head = court.policy.model.network.get_output_embeddings()
    before = head.weight.data.clone()
    head.weight.data[0] = float("nan")
    with pytest.raises(Unavailable, match="abstain"):
        prefill(court.policy.model, sequences, 1.0, torch.float32)
    head.weight.data.copy_(before)


def test_sequences_that_differ_in_the_last_token_or_the_noise_are_told_apart(court: Court) -> None:
    (one,), _ = completed(court, 1)
    other_end = one.output_tokens.copy()
    other_end[-1] = (other_end[-1] + 1) % 18
    different = [
        one,
        Completed(one.prompt_tokens, other_end, one.noise_key),
        Completed(one.prompt_tokens, one.output_tokens, (9, 9)),
        one,
    ]
    together = prefill(court.policy.model, different, 1.0, torch.float32)
    for n, sequence in enumerate(different):
        alone, part = prefill(court.policy.model, [sequence], 1.0, torch.float32), together.slice(n, n + 1)
        np.testing.assert_allclose(part.margins_S, alone.margins_S, atol=1e-4)
        np.testing.assert_allclose(part.logprobs_S, alone.logprobs_S, atol=1e-4)


torch.set_num_threads(1)
SIZES = {
    "vocab_size": 7,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}
NETWORKS = [
    LlamaForCausalLM(LlamaConfig(**SIZES)).eval(),
    MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).eval(),
]
TOKENS = st.lists(st.integers(0, 6), min_size=1, max_size=9)


@given(
    st.lists(st.tuples(st.sampled_from([[1], [1, 2], [1, 2, 3, 3], [4, 4]]), TOKENS), min_size=1, max_size=9), st.data()
)
@settings(max_examples=30, deadline=None)
def test_sequences_that_share_what_they_begin_with_are_as_in_a_plain_pass_of_each(
    pairs: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    network, temperature = data.draw(st.sampled_from(NETWORKS)), data.draw(st.sampled_from([0.0, 0.7, 1.0]))
    sequences = [
        Completed(np.array(prompt, np.int32), np.array(output, np.int32), (n, 5))
        for n, (prompt, output) in enumerate(pairs)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefilling, "MAX_TOKENS", {"cpu": data.draw(st.sampled_from([1, 6, 100]))})
        patch.setattr(prefilling, "MAX_LOGITS", {"cpu": data.draw(st.sampled_from([1, 30, 10_000]))})
        together = prefill(Model(network, None, 0), sequences, temperature, torch.float32)
    for n, one in enumerate(sequences):
        part, length = together.slice(n, n + 1), len(one.output_tokens)
        fed = torch.from_numpy(np.concatenate([one.prompt_tokens, one.output_tokens[:-1]])).long()[None]
        with torch.inference_mode():
            output = network(input_ids=fed, output_hidden_states=True, use_cache=False)
        logits_TV, hidden_TH = output.logits[0, -length:], output.hidden_states[-1][0, -length:]
        noise_TV = torch.from_numpy(gumbel_noise(np.array([one.noise_key], np.uint32), range(length), 7)[0])
        scores_TV = logits_TV + np.float32(temperature) * noise_TV
        taken_T1 = torch.from_numpy(one.output_tokens).long()[:, None]
        top_T2 = scores_TV.topk(2).values
        logprobs_T = (logits_TV / (temperature or 1.0)).log_softmax(-1).gather(1, taken_T1)[:, 0]
        np.testing.assert_allclose(part.logprobs_S, logprobs_T, atol=1e-4)
        np.testing.assert_allclose(part.margins_S, top_T2[:, 0] - scores_TV.gather(1, taken_T1)[:, 0], atol=1e-4)
        np.testing.assert_allclose(part.gaps_S, top_T2[:, 0] - top_T2[:, 1], atol=1e-4)
        leads_T = (
            logits_TV.gather(1, taken_T1)[:, 0]
            - logits_TV.gather(1, torch.from_numpy(part.chosen_S).long()[:, None])[:, 0]
        )
        np.testing.assert_allclose(part.leads_S, leads_T, atol=1e-4)
        torch.testing.assert_close(part.hidden_SH.float(), hidden_TH.bfloat16().float(), atol=0.04, rtol=0.02)


def test_worker_and_validator_choose_the_very_same_tokens_at_fp32() -> None:
    requests = [Request((1, 2, 3)[: 1 + n % 3], (n, 1), 40, 1.0, (0,)) for n in range(48)]
    done = decode(NETWORKS[0], requests, max_rows=20)
    sequences = [
        Completed(np.array(request.prompt_tokens, np.int32), np.array(one.output_tokens, np.int32), request.noise_key)
        for request, one in zip(requests, done, strict=True)
    ]
    checked = prefill(Model(NETWORKS[0], None, 0), sequences, 1.0, torch.float32)
    np.testing.assert_array_equal(checked.chosen_S, np.concatenate([one.output_tokens for one in sequences]))
    assert checked.margins_S.max() == 0
    assert checked.leads_S.max() == 0


def test_a_model_that_changes_its_logits_is_refused(court: Court) -> None:
    probe(court.policy.model)
    scaled = GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=4.0)).eval()
    with pytest.raises(Misconfigured, match="differ from its LM head"):
        probe(Model(scaled, None, 0))
