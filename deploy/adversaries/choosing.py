"""Decoding with a choice of tokens other than the seeded maximum, and the true policy's logprobs for the result.

Axes: B rows of the running batch, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from transformers import DynamicCache

from protocol.tensor.completions import Completion, Request
from protocol.tensor.model import DTYPES, Model
from protocol.tensor.noise import perturb
from protocol.wire.rules import Rules
from validator.judging.prefill import Completed, prefill

ROWS = 512


@dataclass(frozen=True, slots=True)
class ChoiceStep:
    """State in which one token of every running row is chosen.

    position   index of the token in its completion
    rows       request of each row
    logits     fp32 (B, V), of each network
    scores_BV  the first network's logits with noise
    written    tokens so far, by request
    """

    position: int
    rows: list[int]
    logits: list[torch.Tensor]
    scores_BV: torch.Tensor
    written: list[list[int]]


Choose = Callable[[ChoiceStep], torch.Tensor]


def decode_choosing(networks: Sequence[Any], requests: Sequence[Request], choose: Choose) -> list[tuple[int, ...]]:
    """Returns the tokens that ``choose`` takes (int64, (B,) a step); all networks read them."""
    outputs: list[tuple[int, ...]] = [()] * len(requests)
    lengths = sorted({len(request.prompt_tokens) for request in requests})
    for length in lengths:
        members = [n for n, request in enumerate(requests) if len(request.prompt_tokens) == length]
        for start in range(0, len(members), ROWS):
            _decode(networks, requests, members[start : start + ROWS], choose, outputs)
    return outputs


@torch.inference_mode()
def _decode(
    networks: Sequence[Any],
    requests: Sequence[Request],
    members: list[int],
    choose: Choose,
    outputs: list[tuple[int, ...]],
) -> None:
    caches = [DynamicCache(config=network.config) for network in networks]
    fed_BT = torch.tensor([requests[n].prompt_tokens for n in members])
    rows, written = members, [[] for _ in requests]  # type: list[int], list[list[int]]
    keys_B2 = torch.tensor([requests[n].noise_key for n in members])
    temperatures_B = torch.tensor([requests[n].temperature for n in members], dtype=torch.float32)
    for position in range(max(requests[n].max_tokens for n in members)):
        logits = [_logits(network, fed_BT, cache) for network, cache in zip(networks, caches, strict=True)]
        positions_B = torch.full((len(rows),), position)
        scores_BV = perturb(logits[0].clone(), keys_B2, positions_B, temperatures_B)
        tokens_B = choose(ChoiceStep(position, rows, logits, scores_BV, written))
        for n, token in zip(rows, tokens_B.tolist(), strict=True):
            written[n].append(token)
        kept = [b for b, n in enumerate(rows) if _goes_on(requests[n], written[n])]
        if not kept:
            break
        fed_BT = tokens_B[:, None]
        if len(kept) < len(rows):
            kept_B = torch.tensor(kept)
            for cache in caches:
                cache.batch_select_indices(kept_B)
            rows = [rows[b] for b in kept]
            fed_BT, keys_B2, temperatures_B = fed_BT[kept_B], keys_B2[kept_B], temperatures_B[kept_B]
    for n in members:
        outputs[n] = tuple(written[n])


def _logits(network: Any, fed_BT: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    output = network(input_ids=fed_BT, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return output.logits[:, -1].float()  # type: ignore[no-any-return]


def _goes_on(request: Request, written: list[int]) -> bool:
    return written[-1] not in request.stop_tokens and len(written) < request.max_tokens


def prefilled(
    model: Model, rules: Rules, requests: Sequence[Request], outputs: Sequence[Sequence[int]]
) -> list[Completion]:
    """Returns completions of these tokens with the true policy's logprobs and hidden states."""
    sequences = [
        Completed(np.array(request.prompt_tokens, np.int32), np.array(output, np.int32), request.noise_key)
        for request, output in zip(requests, outputs, strict=True)
    ]
    found = prefill(model, sequences, rules.temperature, DTYPES[rules.model.head_dtype])
    lengths = found.lengths_N.tolist()
    logprobs = torch.split(torch.from_numpy(found.logprobs_S), lengths)
    return [
        Completion(tuple(output), logprobs_T, hidden_TH, ending(request, output))
        for request, output, logprobs_T, hidden_TH in zip(
            requests, outputs, logprobs, torch.split(found.hidden_SH, lengths), strict=True
        )
    ]


def ending(request: Request, output: Sequence[int]) -> Literal["stop", "length"]:
    """Returns the finish reason of these tokens."""
    return "stop" if output[-1] in request.stop_tokens else "length"


def with_key(request: Request, key: tuple[int, int]) -> Request:
    """Returns the request with another noise key."""
    return replace(request, noise_key=key)
