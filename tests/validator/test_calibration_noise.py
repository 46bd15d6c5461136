"""Noise that is read off logprobs is the noise that is really there, between choice and runner-up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.tensor.model import load_model
from protocol.wire.sampling import gumbel_noise
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import CERTAIN, noise

RUNS = Path(__file__).parents[2] / "deploy" / "runs"
ROWS, PROMPT, LENGTH = 48, 8, 40


@torch.inference_mode()
def both_ways(directory: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of the same tokens, one position at a time from a cache and all at once, and the tokens (B, T)."""
    network = load_model(directory, torch.float32).network
    tokens_BT = torch.randint(3, network.config.vocab_size, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    whole_BTV = network(input_ids=tokens_BT, use_cache=False).logits
    made = network(input_ids=tokens_BT[:, :PROMPT], use_cache=True)
    cache, steps = made.past_key_values, [made.logits]
    for position in range(PROMPT, LENGTH):
        fed = tokens_BT[:, position : position + 1]
        steps.append(network(input_ids=fed, past_key_values=cache, use_cache=True).logits)
    return torch.cat(steps, 1)[:, PROMPT - 1 : -1], whole_BTV[:, PROMPT - 1 : -1], tokens_BT


def test_noise_read_off_logprobs_is_that_between_choice_and_runner_up(model_directory: Path) -> None:
    stepped_BTV, whole_BTV, _ = both_ways(model_directory)
    keys_B2 = np.arange(2 * ROWS, dtype=np.uint32).reshape(ROWS, 2)
    noise_BTV = torch.from_numpy(gumbel_noise(keys_B2, range(stepped_BTV.shape[1]), stepped_BTV.shape[2]))
    top_BT2 = (whole_BTV + noise_BTV).topk(2, -1).indices
    apart_BTV = stepped_BTV - whole_BTV
    truth = (apart_BTV.gather(2, top_BT2[..., :1]) - apart_BTV.gather(2, top_BT2[..., 1:])).abs().flatten().numpy()
    reported, recomputed = (
        logits_BTV.log_softmax(-1).gather(2, top_BT2[..., :1]).flatten().numpy()
        for logits_BTV in (stepped_BTV, whole_BTV)
    )
    nothing_S, empty = np.zeros_like(reported), np.zeros(0, np.float32)
    job = MeasuredJob(
        *(np.full(ROWS, LENGTH - PROMPT), nothing_S, nothing_S, nothing_S),
        *(reported, recomputed, empty, empty, empty.astype(bool), np.zeros(ROWS, np.int64)),
        *("transformers", "model", ROWS),
    )
    found = noise(job, 1.0)[np.exp(recomputed) <= CERTAIN]
    assert truth.max() > 0
    for share in (0.9, 0.99):
        assert np.quantile(found, share) >= 0.8 * np.quantile(truth, share)
    assert np.quantile(found, 0.99) < 10 * np.quantile(truth, 0.99)


def test_tokens_all_but_certain_say_nothing(model_directory: Path) -> None:
    reported = np.log(np.array([0.5, 0.95], np.float32))
    nothing = np.zeros(2, np.float32)
    chunks = np.ones(1, np.int64)
    job = MeasuredJob(
        *(np.array([2]), nothing, nothing, nothing, reported + 0.01, reported, nothing, nothing),
        *(np.ones(2, np.bool_), chunks, "x", "m", 1),
    )
    assert noise(job, 1.0) == pytest.approx([np.sqrt(2) * 0.02, 0.0], rel=1e-4)


@pytest.mark.parametrize("name", ["builtin", "builtin-bfloat16", "smollm2"])
def test_no_honest_logprob_came_near_the_bound_on_each(name: str) -> None:
    measured = json.loads((RUNS / f"{name}-calibration.json").read_text())
    largest = max(band["logprob_max"] for band in measured["bands"])
    assert largest * measured["rules"]["temperature"] < measured["rules"]["thresholds"]["sampling_void"] / 4
