"""Seeded decoding: equal requests give equal tokens on any host, whatever else is in the batch.

Works on any causal LM of transformers whose only state is keys and values. Batching is continuous: rows of different
lengths run side by side, and waiting requests replace rows that have ended. A prefix that several prompts share runs
once.

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
from protocol.tensor.alignment import run_aligned
from protocol.tensor.attention import check_attention, run
from protocol.tensor.completions import Completion, Request, Sampler
from protocol.tensor.packing import PackedLayout, pack
from protocol.tensor.slots import Slots

MAX_ROWS = 512
"""On two cores a batch of 512 rows decodes a third faster than two of 256."""

PROMPT_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 14}
"""Prompt tokens of one pass, by device; see ``validator.judging.prefill``."""

KEY_VALUE_BYTES = 4 << 30
"""Memory for keys and values on a CPU."""

KEY_VALUE_SHARE = 0.4
"""Share of an accelerator's free memory for keys and values."""

TURN_OVER = 1 / 8
"""Share of the batch that must have ended before rows are replaced: one pass over prompts then serves several rows, and
an ended row costs little until then."""


def decode(
    model: Any,
    requests: Sequence[Request],
    cancelled: Callable[[], bool] = lambda: False,
    max_rows: int = MAX_ROWS,
    sampler: type[Sampler] = Sampler,
    aligned: bool = False,
) -> list[Completion]:
    """Completes every request and returns the completions in the order of the requests.

    At most ``max_rows`` run at a time. Another ``sampler`` chooses tokens differently, for comparisons. If ``aligned``,
    attention is as in ``protocol.tensor.alignment``.

    Raises:
        Unavailable: ``cancelled`` returned true; it is asked before every pass.
        Misconfigured: The model's rows cannot share a batch.
    """
    check_attention(model)
    with torch.inference_mode(), HeadInput(model) as head_input:
        return Decoder(model, head_input, requests, cancelled, max_rows, sampler, aligned).complete()


class HeadInput:
    """Context that records the last input of the LM head."""

    def __init__(self, model: Any) -> None:
        self.head = model.get_output_embeddings()
        self.hidden: Tensor = torch.empty(0)

    def __enter__(self) -> HeadInput:
        self._hook = self.head.register_forward_pre_hook(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _record(self, _module: object, arguments: tuple[Tensor, ...]) -> None:
        self.hidden = arguments[0]


class Decoder:
    """Moves requests through the slots. ``request_B`` is the request in each slot in use, -1 once it has ended."""

    def __init__(
        self,
        model: Any,
        head_input: HeadInput,
        requests: Sequence[Request],
        cancelled: Callable[[], bool],
        max_rows: int,
        sampler: type[Sampler],
        aligned: bool,
    ) -> None:
        self.model, self.head_input, self.requests = model, head_input, requests
        self.cancelled, self.max_rows = cancelled, max_rows
        self.device: torch.device = model.get_input_embeddings().weight.device
        self.totals = [len(request.prompt_tokens) + request.max_tokens for request in requests]
        # Longest first, so that capacity for one suffices for all that follow; equal prompts side by side.
        order = sorted(range(len(requests)), key=lambda n: (-self.totals[n], requests[n].prompt_tokens))
        self.waiting = deque(order)
        self.done: dict[int, Completion] = {}
        longest = max((request.max_tokens for request in requests), default=0)
        self.sampler = sampler(longest, model.get_output_embeddings().weight.shape[1], self.device)
        self.slots = Slots(self.device, aligned)
        self.request_B: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.most_positions = most_bytes(self.device) // position_bytes(model)

    def complete(self) -> list[Completion]:
        """Decodes until no request waits or runs."""
        self._schedule()
        while len(self.request_B):
            self._run()
            ended = self._ended()
            if len(ended):
                self._postprocess(ended)
                self._schedule()
        return [self.done[n] for n in range(len(self.requests))]

    def _check_cancelled(self) -> None:
        if self.cancelled():
            raise Unavailable("generation was cancelled")

    def _run(self) -> None:
        """Decodes one token for every row."""
        self._check_cancelled()
        rows = len(self.request_B)
        positions_B = self.slots.begin()
        passing = run_aligned if self.slots.aligned else run
        output = passing(self.model, self.slots, self.sampler.last_R[:rows], positions_B, logits_to_keep=max(2, rows))
        self.sampler.sample(output.logits[0][:rows].float(), self.head_input.hidden[0][:rows])
        self.slots.advance()

    def _ended(self) -> NDArray[np.int64]:
        """Returns the slots whose requests have ended, or none while those are too few to replace."""
        running_B = self.sampler.running_R[: len(self.request_B)].cpu().numpy()
        if running_B.sum() > (1 - TURN_OVER) * len(running_B):
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(~running_B)

    def _postprocess(self, ended: NDArray[np.int64]) -> None:
        """Keeps the completions in the slots ``ended`` and marks the slots as free."""
        for slot in ended.tolist():
            self.done[int(self.request_B[slot])] = self._completion(slot)
        self.request_B[ended] = -1

    def _completion(self, slot: int) -> Completion:
        return self.sampler.completion(slot)

    def _schedule(self) -> None:
        """Admits waiting requests to free slots, and to new ones as far as memory allows, then closes gaps."""
        if self.waiting:
            running = self.request_B[self.request_B >= 0].tolist()
            capacity = max(self.totals[n] for n in [*self.waiting, *running])
            most = max(1, min(self.max_rows, self.most_positions // capacity))
            if (free := self._admitted(most - len(running))) > 0:
                self.slots.reserve(len(running) + free, capacity)
                self.sampler.reserve(self.slots.rows)
                self._place([self.waiting.popleft() for _ in range(free)])
        self._close_gaps()

    def _admitted(self, free: int) -> int:
        """Returns the number of waiting requests that are placed where there is room for ``free``."""
        return min(free, len(self.waiting))

    def _place(self, numbers: list[int]) -> None:
        """Puts requests into the first free slots, together with the keys and values of their prompts."""
        used, requests = len(self.request_B), [self.requests[n] for n in numbers]
        free = np.concatenate([np.flatnonzero(self.request_B < 0), np.arange(used, used + len(numbers))])
        slots = free[: len(numbers)]
        added = max(0, int(slots.max()) + 1 - used)
        self.request_B = np.concatenate([self.request_B, np.full(added, -1)])
        self.request_B[slots] = numbers
        self.sampler.place(slots, requests)
        self.slots.start(slots, np.array([len(request.prompt_tokens) - 1 for request in requests], dtype=np.int64))
        self._prefill(slots, requests)

    def _prefill(self, slots: NDArray[np.int64], requests: Sequence[Request]) -> None:
        """Runs each different prompt once, without its last token, which is fed as the row's first step."""
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for slot, request in zip(slots.tolist(), requests, strict=True):
            by_prompt.setdefault(request.prompt_tokens[:-1], []).append(slot)
        by_prompt.pop((), None)
        holders = list(by_prompt.values())
        for part in pack([np.array(prompt, np.int32) for prompt in by_prompt], PROMPT_TOKENS[self.device.type]):
            self._check_cancelled()
            layout = PackedLayout.of(part, self.device, keeps=True, aligned=self.slots.aligned)
            (run_aligned if self.slots.aligned else run)(self.model.base_model, layout, *part.inputs(self.device))
            into = np.concatenate([holders[member] for member in part.members_S])
            counts = [len(holders[member]) for member in part.members_S]
            self.slots.fill(into, layout.kept, np.repeat(part.nodes_ST, counts, axis=0))

    def _close_gaps(self) -> None:
        """Moves the last rows into free slots before them and drops the slots behind."""
        there_B = self.request_B >= 0
        count = int(there_B.sum())
        if count == len(there_B):
            return
        sources, targets = count + np.flatnonzero(there_B[count:]), np.flatnonzero(~there_B[:count])
        self.sampler.move(sources, targets)
        self.slots.shrink(sources, targets, count)
        self.request_B[targets] = self.request_B[sources]
        self.request_B = self.request_B[:count]


def position_bytes(model: Any) -> int:
    """Returns the bytes of one position's keys and values in all layers."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * model.get_input_embeddings().weight.element_size())


def most_bytes(device: torch.device) -> int:
    """Returns the memory that keys and values may take on a device."""
    if device.type != "cuda":
        return KEY_VALUE_BYTES
    return int(KEY_VALUE_SHARE * torch.cuda.mem_get_info(device)[0])
