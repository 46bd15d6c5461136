"""Requests and completions of a decoder, and the sampler that holds many of them as tensors on the decoder's device.

Axes: B rows that run, R slots, T positions, V vocabulary, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.tensor.noise import perturb


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to generate. ``noise_key`` is Philox's key (two u32), ``temperature`` 0 (greedy) to 1.5.

    Any of ``stop_tokens`` ends it.
    """

    prompt_tokens: tuple[int, ...]
    noise_key: tuple[int, int]
    max_tokens: int
    temperature: float
    stop_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of a request.

    ``output_tokens``  the sampled tokens, including the stop token if one was sampled.
    ``logprobs_T``     fp32, of the sampled tokens: log-softmax(logits / T) over the whole vocabulary (T = 1 if greedy).
    ``hidden_TH``      bf16, the LM head's input for each token; row 0 is the last prompt token's.
    ``finish_reason``  "stop" if the last token is a stop token, else "length".
    """

    output_tokens: tuple[int, ...]
    logprobs_T: Tensor
    hidden_TH: Tensor
    finish_reason: Literal["stop", "length"]


class Sampler:
    """The requests of R slots and their tokens so far. The first B slots run; some of those may have ended already.

    Rows that have ended keep recording into a spare column behind the longest completion.
    """

    def __init__(self, longest: int, hidden: int, device: torch.device) -> None:
        self.device = device
        self.keys_R2 = self._new((0, 2))
        self.temperature_R = self._new((0,), torch.float32)
        self.limit_R, self.steps_R, self.last_R = (self._new((0,)) for _ in range(3))
        self.stops_RS = self._new((0, 1))
        self.running_R = self._new((0,), torch.bool)
        self.divides = False
        self.tokens_RT = self._new((0, longest + 1))
        self.logprobs_RT = self._new((0, longest + 1), torch.float32)
        self.hidden_RTH = self._new((0, longest + 1, hidden), torch.bfloat16)

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def reserve(self, slots: int) -> None:
        """Grows to at least ``slots`` rows, keeping those that exist."""
        missing = slots - len(self.running_R)
        if missing > 0:
            for name, held in list(vars(self).items()):
                if isinstance(held, Tensor):
                    setattr(self, name, torch.cat([held, self._new((missing, *held.shape[1:]), held.dtype)]))

    def place(self, slots: NDArray[np.int64], requests: Sequence[Request]) -> None:
        """Starts ``requests`` in ``slots``; the last token of each prompt is the first to be fed."""
        places = torch.from_numpy(slots).to(self.device)
        for held, values in (
            (self.keys_R2, [request.noise_key for request in requests]),
            (self.temperature_R, [request.temperature for request in requests]),
            (self.limit_R, [request.max_tokens for request in requests]),
            (self.last_R, [request.prompt_tokens[-1] for request in requests]),
        ):
            held[places] = torch.tensor(values, dtype=held.dtype, device=self.device)
        self._place_stops(places, [request.stop_tokens for request in requests])
        self.steps_R[places] = 0
        self.divides |= any(request.temperature not in (0.0, 1.0) for request in requests)
        self.running_R[places] = True

    def _place_stops(self, places: Tensor, stops: Sequence[Sequence[int]]) -> None:
        """Sets stop tokens, filled up with -1, which is no token."""
        missing = max(map(len, stops)) - self.stops_RS.shape[1]
        if missing > 0:
            self.stops_RS = torch.nn.functional.pad(self.stops_RS, (0, missing), value=-1)
        width = self.stops_RS.shape[1]
        filled = [[*tokens, *[-1] * (width - len(tokens))] for tokens in stops]
        self.stops_RS[places] = torch.tensor(filled, device=self.device)

    def sample(self, logits_BV: Tensor, hidden_BH: Tensor) -> None:
        """Chooses and records a token for each running row. ``logits_BV``, if fp32, is overwritten."""
        rows = slice(len(logits_BV))
        index_B, steps_B = torch.arange(len(logits_BV), device=self.device), self.steps_R[rows]
        temperature_B = self.temperature_R[rows]
        scaled_BV = (
            logits_BV / torch.where(temperature_B == 0, 1.0, temperature_B)[:, None] if self.divides else logits_BV
        )
        logprobs_BV = scaled_BV.log_softmax(-1)
        tokens_B = self.choose(logits_BV, logprobs_BV)
        self.logprobs_RT[index_B, steps_B] = logprobs_BV[index_B, tokens_B]
        self.hidden_RTH[index_B, steps_B] = hidden_BH.bfloat16()
        self.record(tokens_B)

    def record(self, tokens_B: Tensor) -> None:
        """Appends a token to each running row, and ends those that are complete."""
        rows = slice(len(tokens_B))
        steps_B = self.steps_R[rows]
        self.last_R[rows] = tokens_B
        self.tokens_RT[torch.arange(len(tokens_B), device=self.device), steps_B] = tokens_B
        steps_B += self.running_R[rows]
        stopped_B = (tokens_B[:, None] == self.stops_RS[rows]).any(1)
        self.running_R[rows] &= ~stopped_B & (steps_B < self.limit_R[rows])

    def choose(self, logits_BV: Tensor, logprobs_BV: Tensor) -> Tensor:
        """Returns the tokens (B,) that logits and the rows' noise determine. May overwrite ``logits_BV``."""
        rows = slice(len(logits_BV))
        return perturb(logits_BV, self.keys_R2[rows], self.steps_R[rows], self.temperature_R[rows]).argmax(-1)

    def completion(self, slot: int) -> Completion:
        """Returns the completion of the request in ``slot``, which must have ended."""
        length = int(self.steps_R[slot])
        tokens = tuple(self.tokens_RT[slot, :length].tolist())
        return Completion(
            tokens,
            self.logprobs_RT[slot, :length].to("cpu", copy=True),
            self.hidden_RTH[slot, :length].to("cpu", copy=True),
            "stop" if tokens[-1] in self.stops_RS[slot].tolist() else "length",
        )

    def move(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Moves the rows of the slots ``sources`` to ``targets``."""
        there, here = (torch.from_numpy(array).to(self.device) for array in (sources, targets))
        for held in vars(self).values():
            if isinstance(held, Tensor):
                held[here] = held[there]
