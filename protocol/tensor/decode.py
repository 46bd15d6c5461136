"""Seeded decoding: the same requests give the same tokens to whoever decodes them, whatever else is in the batch.

Works on any causal LM of transformers whose attention is keys and values. Batching is continuous: rows of different
lengths run side by side, and where some have ended, waiting requests take their places. What their prompts have in
common is run once.

Axes: B rows that run, N nodes of a pack of prompts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import Unavailable
from protocol.tensor.attention import check_attention, run
from protocol.tensor.completions import Completion, Request, Sampler
from protocol.tensor.packing import PackedLayout, pack
from protocol.tensor.slots import Slots

__all__ = ["Completion", "Request", "decode"]

MAX_ROWS = 512
PROMPT_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 14}
KEY_VALUE_BYTES = 4 << 30
KEY_VALUE_SHARE = 0.4
TURN_OVER = 1 / 8


def decode(
    model: Any,
    requests: Sequence[Request],
    cancelled: Callable[[], bool] = lambda: False,
    max_rows: int = MAX_ROWS,
    sampler: type[Sampler] = Sampler,
) -> list[Completion]:
    """Complete every request, in their order, at most ``max_rows`` at a time.

    Another ``sampler`` chooses tokens otherwise, to be compared with.
    Raises ``Unavailable`` as soon as ``cancelled`` says so, ``Misconfigured`` for a model whose rows cannot share a
    batch.
    """
    check_attention(model)
    with torch.inference_mode(), _head_input(model) as head_input:
        return _Decoder(model, head_input, requests, cancelled, max_rows, sampler).run()


class _head_input:
    """While open, remembers what the LM head was last given."""

    def __init__(self, model: Any) -> None:
        self._head = model.get_output_embeddings()
        self.hidden: Tensor = torch.empty(0)

    def __enter__(self) -> _head_input:
        self._hook = self._head.register_forward_pre_hook(self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _remember(self, _module: object, arguments: tuple[Tensor, ...]) -> None:
        self.hidden = arguments[0]


class _Decoder:
    """Requests on their way through the slots. ``request_B`` names the one in each slot in use, -1 where it is done."""

    def __init__(
        self,
        model: Any,
        head_input: _head_input,
        requests: Sequence[Request],
        cancelled: Callable[[], bool],
        max_rows: int,
        sampler: type[Sampler],
    ) -> None:
        self.model, self.head_input, self.requests = model, head_input, requests
        self.cancelled, self.max_rows = cancelled, max_rows
        self.device: torch.device = model.get_input_embeddings().weight.device
        self.totals = [len(request.prompt_tokens) + request.max_tokens for request in requests]
        # The longest first: room for one is room for all that follow. Equal prompts side by side.
        order = sorted(range(len(requests)), key=lambda n: (-self.totals[n], requests[n].prompt_tokens))
        self.waiting = deque(order)
        self.done: dict[int, Completion] = {}
        longest = max((request.max_tokens for request in requests), default=0)
        self.sampler = sampler(longest, model.get_output_embeddings().weight.shape[1], self.device)
        self.slots = Slots(self.device)
        self.request_B: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.most_positions = _most_bytes(self.device) // _position_bytes(model)

    def run(self) -> list[Completion]:
        """Steps until nothing waits and nothing runs."""
        self._turn_over()
        while len(self.request_B):
            self._step()
            self._turn_over()
        return [self.done[n] for n in range(len(self.requests))]

    def _check_cancelled(self) -> None:
        if self.cancelled():
            raise Unavailable("generation was cancelled")

    def _step(self) -> None:
        """One token for every row."""
        self._check_cancelled()
        rows = len(self.request_B)
        positions_B = self.slots.begin()
        output = run(self.model, self.slots, self.sampler.last_R[:rows], positions_B, logits_to_keep=rows)
        self.sampler.sample(output.logits[0].float(), self.head_input.hidden[0])
        self.slots.advance()

    def _turn_over(self) -> None:
        """Takes out the rows that have ended, where they are enough to be worth it, and gives their places away."""
        running_B = self.sampler.running_R[: len(self.request_B)].cpu().numpy()
        if running_B.sum() > (1 - TURN_OVER) * len(running_B):
            return
        for slot in np.flatnonzero(~running_B).tolist():
            self.done[int(self.request_B[slot])] = self.sampler.completion(slot)
            self.request_B[slot] = -1
        self._admit()
        self._close_gaps()

    def _admit(self) -> None:
        """Gives free slots, and new ones as far as memory allows, to requests that wait."""
        if not self.waiting:
            return
        running = self.request_B[self.request_B >= 0].tolist()
        capacity = max(self.totals[n] for n in [self.waiting[0], *running])
        most = max(1, min(self.max_rows, self.most_positions // capacity))
        free = min(most - len(running), len(self.waiting))
        if free > 0:
            self.slots.reserve(len(running) + free, capacity)
            self.sampler.reserve(self.slots.rows)
            self._place([self.waiting.popleft() for _ in range(free)])

    def _place(self, numbers: list[int]) -> None:
        """Puts requests into the first free slots, with their prompts' keys and values."""
        used, requests = len(self.request_B), [self.requests[n] for n in numbers]
        slots = np.concatenate([np.flatnonzero(self.request_B < 0), np.arange(used, used + len(numbers))])[
            : len(numbers)
        ]
        more = max(0, int(slots.max()) + 1 - used)
        self.request_B = np.concatenate([self.request_B, np.full(more, -1)])
        self.request_B[slots] = numbers
        self.sampler.place(slots, requests)
        self.slots.start(slots, np.array([len(request.prompt_tokens) - 1 for request in requests], dtype=np.int64))
        self._prefill(slots, requests)

    def _prefill(self, slots: NDArray[np.int64], requests: Sequence[Request]) -> None:
        """Runs all of the prompts but their last tokens, each different one once; those are fed as the first step."""
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for slot, request in zip(slots.tolist(), requests, strict=True):
            by_prompt.setdefault(request.prompt_tokens[:-1], []).append(slot)
        by_prompt.pop((), None)
        holders = list(by_prompt.values())
        for part in pack([np.array(prompt, np.int32) for prompt in by_prompt], PROMPT_TOKENS[self.device.type]):
            self._check_cancelled()
            layout = PackedLayout.of(part, self.device, keeps=True)
            run(self.model.base_model, layout, *part.inputs(self.device))
            into = np.concatenate([holders[member] for member in part.members_S])
            counts = [len(holders[member]) for member in part.members_S]
            self.slots.fill(into, layout.kept, np.repeat(part.nodes_ST, counts, axis=0))

    def _close_gaps(self) -> None:
        """Moves the last rows to where others have ended, and forgets the slots behind them."""
        there_B = self.request_B >= 0
        count = int(there_B.sum())
        if count == len(there_B):
            return
        sources, targets = count + np.flatnonzero(there_B[count:]), np.flatnonzero(~there_B[:count])
        self.sampler.move(sources, targets)
        self.slots.shrink(sources, targets, count)
        self.request_B[targets] = self.request_B[sources]
        self.request_B = self.request_B[:count]


def _position_bytes(model: Any) -> int:
    """Bytes of one position's keys and values in all layers."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * model.get_input_embeddings().weight.element_size())


def _most_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return KEY_VALUE_BYTES
    return int(KEY_VALUE_SHARE * torch.cuda.mem_get_info(device)[0])


# MAX_ROWS: on two cores a batch of 512 rows decodes a third faster than two of 256.
# PROMPT_TOKENS: prompt tokens a pass takes; see ``validator.judging.prefill``.
# KEY_VALUE_BYTES, KEY_VALUE_SHARE: memory for keys and values; on an accelerator a share of what is free.
# TURN_OVER: rows that end are replaced or removed an eighth of the batch at a time: several rows then pay for a pass
# over prompts, and a row that has ended costs little until then.
