"""Seeded decoding: the same requests give the same tokens to whoever decodes them.

Works on any Hugging Face causal LM. A group's prompt is run once and its cache repeated, finished rows are dropped
from the batch, and keys and values live in buffers of their final size, because for a small model copying costs more
than computing.

Axes: B rows of the running batch, N requests, T positions, V vocabulary, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from protocol.errors import Unavailable
from protocol.tensor.noise import gumbel_noise

MAX_ROWS = 512
MAX_NOISE = 1 << 26
COMPACT_BELOW = 0.75


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to make. ``noise_key`` is Philox's key (two u32), ``temperature`` 0 (greedy) to 1.5."""

    prompt_tokens: tuple[int, ...]
    noise_key: tuple[int, int]
    max_tokens: int
    temperature: float
    stop_token: int


@dataclass(frozen=True, slots=True)
class Completion:
    """What a request gave.

    ``output_tokens``  the sampled tokens, the stop token included where it was sampled.
    ``logprobs_T``     fp32, of the sampled tokens: log-softmax(logits / T) over the whole vocabulary (T = 1 if greedy).
    ``hidden_TH``      bf16, what the LM head saw when it gave each token; row 0 is the last prompt token's.
    ``finish_reason``  "stop" where the last token is the stop token, else "length".
    """

    output_tokens: tuple[int, ...]
    logprobs_T: torch.Tensor
    hidden_TH: torch.Tensor
    finish_reason: Literal["stop", "length"]


def decode(model: Any, requests: Sequence[Request], cancelled: Callable[[], bool] = lambda: False) -> list[Completion]:
    """Complete every request, in their order. ``Unavailable`` as soon as ``cancelled`` says so."""
    completions: list[Completion | None] = [None] * len(requests)
    with torch.inference_mode(), _head_input(model) as head_input:
        for indices in _micro_batches(requests):
            batch = _Batch(model, head_input, [requests[i] for i in indices])
            for index, completion in zip(indices, batch.run(cancelled), strict=True):
                completions[index] = completion
    return [completion for completion in completions if completion is not None]


def _micro_batches(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Indices in batches of equal prompt length, equal prompts side by side: nothing needs padding."""
    order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt_tokens), requests[i].prompt_tokens))
    batch: list[int] = []
    for index in order:
        same_length = batch and len(requests[batch[0]].prompt_tokens) == len(requests[index].prompt_tokens)
        if batch and (len(batch) == MAX_ROWS or not same_length):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class _head_input:
    """While open, remembers what the LM head was last given."""

    def __init__(self, model: Any) -> None:
        self._head = model.get_output_embeddings()
        self.hidden: torch.Tensor = torch.empty(0)

    def __enter__(self) -> _head_input:
        self._hook = self._head.register_forward_pre_hook(self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _remember(self, _module: object, arguments: tuple[torch.Tensor, ...]) -> None:
        self.hidden = arguments[0]


class _BufferLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """A cache layer that writes into a buffer of its final size instead of copying all it holds at every token."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (self._buffer(states) for states in (key_states, value_states))
        self.is_initialized = True

    def _buffer(self, states_BKTD: torch.Tensor) -> torch.Tensor:
        rows, heads, _, width = states_BKTD.shape
        return states_BKTD.new_empty(rows, heads, self.capacity, width)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Make the batch the rows ``indices``, in their order; a row may be taken more than once."""
        self.keys, self.values = (self._selected(held, indices) for held in (self.keys, self.values))

    def _selected(self, held_BKTD: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        new = held_BKTD.new_empty(len(indices), *held_BKTD.shape[1:])
        new[:, :, : self.length] = held_BKTD[:, :, : self.length].index_select(0, indices)
        return new


class _Batch:
    """Requests of one prompt length, decoded together. ``live_B`` names the request of each running row."""

    def __init__(self, model: Any, head_input: _head_input, requests: Sequence[Request]) -> None:
        self.model, self.head_input, self.requests = model, head_input, requests
        self.device = model.get_input_embeddings().weight.device
        count, longest = len(requests), max(request.max_tokens for request in requests)
        self.prompt_length, self.longest = len(requests[0].prompt_tokens), longest
        self.keys_N2 = self._tensor([request.noise_key for request in requests])
        self.temperature_N1 = self._tensor([[request.temperature] for request in requests], torch.float32)
        self.stop_N = self._tensor([request.stop_token for request in requests])
        self.limit_N = self._tensor([request.max_tokens for request in requests])
        self.live_B = torch.arange(count, device=self.device)
        self.length_N = torch.zeros(count, dtype=torch.long, device=self.device)
        self.running_N = torch.ones(count, dtype=torch.bool, device=self.device)
        self.tokens_NT = torch.zeros(count, longest, dtype=torch.long, device=self.device)
        self.logprobs_NT = torch.zeros(count, longest, device=self.device)
        self.hidden_NTH: torch.Tensor | None = None
        self.noise_BTV, self.noise_from = torch.empty(0), 0

    def _tensor(self, values: list[Any], dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def run(self, cancelled: Callable[[], bool]) -> list[Completion]:
        logits_BV, hidden_BH = self._prefill()
        for position in range(self.longest):
            if cancelled():
                raise Unavailable("generation was cancelled")
            tokens_B, running_B = self._sample(position, logits_BV, hidden_BH)
            alive = int(running_B.sum())
            if alive == 0:
                break
            if alive <= COMPACT_BELOW * len(running_B):
                tokens_B = self._keep(running_B.nonzero()[:, 0], tokens_B)
            logits_BV, hidden_BH = self._forward(tokens_B[:, None], self.prompt_length + position)
        return [self._completion(n) for n in range(len(self.requests))]

    def _prefill(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run each distinct prompt once, then give every request its row."""
        prompts = [request.prompt_tokens for request in self.requests]
        distinct = list(dict.fromkeys(prompts))
        rows = {prompt: row for row, prompt in enumerate(distinct)}
        row_B = self._tensor([rows[prompt] for prompt in prompts])
        self.cache = _buffered_cache(self.model, self.prompt_length + self.longest)
        logits, hidden = self._forward(self._tensor([list(prompt) for prompt in distinct]), 0)
        if len(distinct) < len(prompts):
            self.cache.batch_select_indices(row_B)
        return logits[row_B], hidden[row_B]

    def _forward(self, tokens_BT: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (fp32) and LM-head input after the last of ``tokens_BT``, which stand at ``start`` onward."""
        positions_1T = torch.arange(start, start + tokens_BT.shape[1], device=self.device)[None]
        output = self.model(
            input_ids=tokens_BT, position_ids=positions_1T, past_key_values=self.cache, use_cache=True, logits_to_keep=1
        )
        return output.logits[:, -1].float(), self.head_input.hidden[:, -1]

    def _sample(
        self, position: int, logits_BV: torch.Tensor, hidden_BH: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose and record a token for each row; rows that had ended already record nothing that is kept."""
        live_B, temperature_B1 = self.live_B, self.temperature_N1[self.live_B]
        tokens_B = (logits_BV + temperature_B1 * self._noise_at(position, logits_BV.shape[1])).argmax(-1)
        scaled_BV = logits_BV / torch.where(temperature_B1 == 0, 1.0, temperature_B1)
        if self.hidden_NTH is None:
            shape = (len(self.requests), self.longest, hidden_BH.shape[1])
            self.hidden_NTH = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
        self.tokens_NT[live_B, position] = tokens_B
        self.logprobs_NT[live_B, position] = scaled_BV.gather(1, tokens_B[:, None])[:, 0] - scaled_BV.logsumexp(-1)
        self.hidden_NTH[live_B, position] = hidden_BH.bfloat16()
        self.length_N[live_B] += self.running_N[live_B]
        self.running_N[live_B] &= (tokens_B != self.stop_N[live_B]) & (self.limit_N[live_B] > position + 1)
        return tokens_B, self.running_N[live_B]

    def _noise_at(self, position: int, vocabulary: int) -> torch.Tensor:
        """Noise_BV of one position, drawn for as many positions at once as memory allows."""
        if position >= self.noise_from + (self.noise_BTV.shape[1] if self.noise_BTV.dim() == 3 else 0):
            span = max(1, min(self.longest - position, MAX_NOISE // (len(self.live_B) * vocabulary)))
            keys_B2 = self.keys_N2[self.live_B]
            self.noise_BTV = gumbel_noise(keys_B2, range(position, position + span), vocabulary, self.device)
            self.noise_from = position
        return self.noise_BTV[:, position - self.noise_from]

    def _keep(self, rows: torch.Tensor, tokens_B: torch.Tensor) -> torch.Tensor:
        """Drop every row but ``rows`` from the running batch."""
        self.cache.batch_select_indices(rows)
        self.live_B, self.noise_BTV = self.live_B[rows], self.noise_BTV[rows]
        return tokens_B[rows]

    def _completion(self, n: int) -> Completion:
        assert self.hidden_NTH is not None
        length = int(self.length_N[n])
        tokens = tuple(self.tokens_NT[n, :length].tolist())
        reason: Literal["stop", "length"] = "stop" if tokens[-1] == self.requests[n].stop_token else "length"
        return Completion(tokens, self.logprobs_NT[n, :length].cpu(), self.hidden_NTH[n, :length].cpu(), reason)


def _buffered_cache(model: Any, capacity: int) -> DynamicCache:
    """The model's own kind of cache, its plain layers replaced by buffers of ``capacity`` positions."""
    cache = DynamicCache(config=model.config)
    cache.layers = [_BufferLayer(capacity) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


# MAX_ROWS: on two cores a batch of 512 rows decodes a third faster than two of 256.
# MAX_NOISE: 2**26 fp32 numbers, 256 MiB.
# COMPACT_BELOW: dropping rows copies the cache once; below three quarters that is repaid within a few tokens.
