"""One forward pass over whole sequences: what the policy says of every token a worker sampled.

Sequences are sorted by length, padded on the right (a causal model never looks there, so no mask is needed) and run in
micro-batches; the LM head sees only the rows that sampled a token. Each is then scored as ``protocol.wire.sampling``
says, z = l + T·G, so margins compare with what any honest engine would have chosen.

Axes: N sequences, S sampled tokens of all of them one after another, U those of different sequences, B sequences and R
rows of a micro-batch, T positions, V vocabulary, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.model import Model
from protocol.tensor.noise import gumbel_noise

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

MAX_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 16}
MAX_LOGITS = 1 << 22
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Completed:
    """One sequence to check: prompt (P,) and output (T,) token ids, and the Philox key its noise must come from."""

    prompt_tokens: I32
    output_tokens: I32
    noise_key: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prefill:
    """What the policy says of S sampled tokens, in the order of the N sequences, ``lengths_N`` tokens each.

    margins_S   logits by which each token fell short of the seeded choice, 0 where it is that choice
    gaps_S      logits between the seeded choice and the runner-up
    logprobs_S  natural log of each token's probability at the rules' temperature
    chosen_S    the seeded choice
    leads_S     raw logits by which each token is likelier than the seeded choice, 0 where it is that choice
    hidden_SH   bf16, what the LM head saw
    """

    lengths_N: NDArray[np.int64]
    margins_S: F32
    gaps_S: F32
    logprobs_S: F32
    chosen_S: I32
    leads_S: F32
    hidden_SH: torch.Tensor

    def slice(self, start: int, stop: int) -> Prefill:
        """Returns the part that belongs to sequences ``start`` to ``stop``."""
        first, last = int(self.lengths_N[:start].sum()), int(self.lengths_N[:stop].sum())
        rows = slice(first, last)
        return Prefill(
            self.lengths_N[start:stop],
            self.margins_S[rows],
            self.gaps_S[rows],
            self.logprobs_S[rows],
            self.chosen_S[rows],
            self.leads_S[rows],
            self.hidden_SH[rows],
        )


def prefill(model: Model, sequences: Sequence[Completed], temperature: float, head_dtype: torch.dtype) -> Prefill:
    """Runs the policy over every sequence. Raises ``Unavailable`` where it gives numbers that are not finite."""
    lengths_N = np.array([len(sequence.output_tokens) for sequence in sequences], dtype=np.int64)
    with torch.inference_mode():
        hidden_UH, rows_S = _hidden(model, sequences)
        scored = _score(model, sequences, hidden_UH, rows_S, temperature, head_dtype).cpu().numpy()
        hidden_SH = hidden_UH.to(device="cpu", dtype=torch.bfloat16)[rows_S]
    if not np.isfinite(scored).all():
        raise Unavailable("the policy gives logits that are not finite: abstain")
    margins_S, gaps_S, logprobs_S, leads_S = (np.ascontiguousarray(scored[:, column]) for column in range(4))
    # Token ids below 2^24 are exact in fp32; a vocabulary that large does not exist.
    return Prefill(lengths_N, margins_S, gaps_S, logprobs_S, scored[:, 4].astype(np.int32), leads_S, hidden_SH)


def probe(model: Model) -> None:
    """Raises ``Misconfigured`` where the model does more to logits than its LM head: version 1 rules mean raw ones."""
    network = model.network
    with torch.inference_mode():
        tokens_BT = torch.arange(4, device=_device(model))[None] % network.config.vocab_size
        ours = network.get_output_embeddings()(network.base_model(input_ids=tokens_BT, use_cache=False)[0])
        theirs = network(input_ids=tokens_BT, use_cache=False).logits
    if not torch.allclose(ours.float(), theirs.float(), atol=1e-2, rtol=1e-2):
        raise Misconfigured("this model changes its logits after the LM head, which rules of version 1 do not cover")


def _device(model: Model) -> torch.device:
    device: torch.device = model.network.get_input_embeddings().weight.device
    return device


def _micro_batches(sequences: Sequence[Completed], most: int) -> Iterator[list[int]]:
    """Indices by falling length, at most ``most`` padded positions together."""
    sizes = [len(sequence.prompt_tokens) + len(sequence.output_tokens) for sequence in sequences]
    batch: list[int] = []
    for n in sorted(range(len(sequences)), key=sizes.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * sizes[batch[0]] > most:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def _hidden(model: Model, sequences: Sequence[Completed]) -> tuple[torch.Tensor, torch.Tensor]:
    """What the LM head sees: rows (U, H) of the different sequences, and which of them each sampled token needs, (S,).

    A group's samples often agree to the last token but one; what was fed is the same then, and is run once.
    """
    keys = [(one.prompt_tokens.tobytes(), one.output_tokens[:-1].tobytes()) for one in sequences]
    different = list(dict(zip(keys, sequences, strict=True)).items())
    lengths = [len(one.output_tokens) for _, one in different]
    starts = np.cumsum(lengths) - lengths
    hidden_UH = torch.empty(0)
    for batch in _micro_batches([one for _, one in different], MAX_TOKENS[_device(model).type]):
        hidden_RH = _hidden_rows(model, [different[n][1] for n in batch])
        if not len(hidden_UH):
            hidden_UH = hidden_RH.new_empty(sum(lengths), hidden_RH.shape[1])
        rows = np.concatenate([np.arange(starts[n], starts[n] + lengths[n]) for n in batch])
        hidden_UH[torch.from_numpy(rows).to(hidden_RH.device)] = hidden_RH
    place = {key: (int(start), length) for (key, _), start, length in zip(different, starts, lengths, strict=True)}
    rows_S = np.concatenate([np.arange(start, start + length) for start, length in (place[key] for key in keys)])
    return hidden_UH, torch.from_numpy(rows_S)


def _hidden_rows(model: Model, members: Sequence[Completed]) -> torch.Tensor:
    """Last hidden states after the final norm at each position that sampled a token, (R, H), member after member."""
    # The last token is never fed: it sampled nothing.
    fed = [np.concatenate([member.prompt_tokens, member.output_tokens[:-1]]) for member in members]
    width = max(len(tokens) for tokens in fed)
    tokens_BT = np.zeros((len(fed), width), dtype=np.int64)
    sampled_BT = np.zeros((len(fed), width), dtype=bool)
    for b, (tokens, member) in enumerate(zip(fed, members, strict=True)):
        tokens_BT[b, : len(tokens)] = tokens
        sampled_BT[b, len(member.prompt_tokens) - 1 : len(tokens)] = True
    device = _device(model)
    hidden_BTH = model.network.base_model(input_ids=torch.from_numpy(tokens_BT).to(device), use_cache=False)[0]
    rows: torch.Tensor = hidden_BTH[torch.from_numpy(sampled_BT).to(device)]
    return rows


def _score(
    model: Model,
    sequences: Sequence[Completed],
    hidden_UH: torch.Tensor,
    rows_S: torch.Tensor,
    temperature: float,
    head_dtype: torch.dtype,
) -> torch.Tensor:
    """Margin, gap, logprob, lead and seeded choice of each sampled token, fp32 (S, 5)."""
    lengths = [len(one.output_tokens) for one in sequences]
    keys_S2 = np.repeat(np.array([one.noise_key for one in sequences], dtype=np.int64), lengths, axis=0)
    positions_S = np.concatenate([np.arange(length) for length in lengths])
    tokens_S = np.concatenate([one.output_tokens for one in sequences]).astype(np.int64)
    device = hidden_UH.device
    keys, positions, tokens = (torch.from_numpy(array).to(device) for array in (keys_S2, positions_S, tokens_S))
    head, rows = model.network.get_output_embeddings(), rows_S.to(device)
    step = max(1, MAX_LOGITS // head.weight.shape[0])
    parts = []
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        logits_RV = _logits(head, hidden_UH[rows[part]], head_dtype)
        noise_RV = gumbel_noise(keys[part], positions[part], logits_RV.shape[1], device)
        parts.append(_score_rows(logits_RV, noise_RV, tokens[part, None], temperature))
    return torch.cat(parts)


def _logits(head: Any, hidden_RH: torch.Tensor, head_dtype: torch.dtype) -> torch.Tensor:
    if hidden_RH.dtype == head_dtype:
        logits: torch.Tensor = head(hidden_RH)
    else:
        bias = None if getattr(head, "bias", None) is None else head.bias.to(head_dtype)
        logits = torch.nn.functional.linear(hidden_RH.to(head_dtype), head.weight.to(head_dtype), bias)
    return logits.float()


def _score_rows(
    logits_RV: torch.Tensor, noise_RV: torch.Tensor, tokens_R1: torch.Tensor, temperature: float
) -> torch.Tensor:
    scale = temperature if temperature > 0 else 1.0
    sampled_R = logits_RV.gather(1, tokens_R1)[:, 0]
    logprobs_R = sampled_R / scale - (logits_RV / scale).logsumexp(-1)
    scores_RV = noise_RV.mul_(float(np.float32(temperature))).add_(logits_RV)
    best_R2, index_R2 = scores_RV.topk(2, dim=-1)
    margins_R = best_R2[:, 0] - scores_RV.gather(1, tokens_R1)[:, 0]
    leads_R = sampled_R - logits_RV.gather(1, index_R2[:, :1])[:, 0]
    gaps_R = best_R2[:, 0] - best_R2[:, 1]
    return torch.stack([margins_R, gaps_R, logprobs_R, leads_R, index_R2[:, 0].float()], dim=1)


# MAX_TOKENS: padded positions a forward pass takes. On one core 2048 is fastest (0.40 s for 32,000 positions of the
# built-in model, 0.68 s at 8192): beyond that activations leave the cache.
# MAX_LOGITS: 2^22 fp32 numbers, 16 MiB, several times over while rows are scored.
