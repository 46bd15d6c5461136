"""One prefill of everything gives what each sequence gives alone, and what decoding gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from protocol.errors import Unavailable
from protocol.tensor.decode import Request, decode
from protocol.wire.sampling import gumbel_noise, margin
from tests.validator.conftest import Court
from validator.prefill import Completed, prefill


def completed(court: Court, count: int) -> tuple[list[Completed], list[np.ndarray]]:
    """Decoded sequences of uneven prompts, and the logprobs decoding gave."""
    model, chance = court.policy.model, np.random.default_rng(2)
    requests = [
        Request(tuple(chance.integers(3, 18, 3 + n % 5).tolist()), (n, n + 1), 5 + n % 20, 1.0, model.stop_token)
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
