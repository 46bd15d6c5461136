"""Windows: passes of a model over one job in shapes that follow from the job alone, so that their bits can be compared.

Kernels choose the order of their sums by the shapes they are given, so the same token in another batch has other bits.
A window fixes everything: it runs the tokens at positions kW to (k + 1)W of all rollouts of one job.

    inputs     prompt and output of each rollout, without its last token, as far as they lie in the window
    nodes      tokens at the same position after the same tokens are one node; nodes are in the order of a pack
               (``protocol.tensor.packing``)
    attention  rollouts that add a node are its rows, over the keys and values that windows 0 to k wrote, (k + 1)W
               columns or up to the longest rollout's end, masked in all rows alike
    head       on the nodes that a token was sampled after, in order, ``HEAD_LOGITS`` logits at a time

Nothing else enters: not the other jobs, not the batch in which tokens were first guessed. The worker repeats a window
until its inputs are the tokens that the window itself chooses; a verifier that runs the same window on the same kernels
has the same bits (after LLM-42, arXiv 2601.17768).

Axes: R rollouts in a window, B of them that attend, W positions, N nodes, S columns written so far, Q sampled tokens of
a window, U nodes that they follow, H query heads, K key-value heads, D width of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import Misconfigured
from protocol.tensor.alignment import aligned, attend_aligned, run_aligned
from protocol.tensor.decode import most_bytes, position_bytes
from protocol.tensor.model import logits_of
from protocol.tensor.packing import pack

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

HEAD_LOGITS, LEAST_HEAD_ROWS = 1 << 20, 16
"""Logits that the LM head makes at a time, and rows of hidden states that it takes at least."""


@dataclass(frozen=True, slots=True)
class Window:
    """The nodes of one window.

    start, stop             first position, and the one behind the last
    members_R               the rollouts that are in it
    nodes_RW                the node of each rollout at each position, any node behind its end
    rows_B                  which of its rollouts attend
    source_N                place of each node among the positions of these rows
    tokens_N, positions_N   what a node feeds
    """

    start: int
    stop: int
    members_R: I64
    nodes_RW: I64
    rows_B: I64
    source_N: I64
    tokens_N: I64
    positions_N: I64

    @classmethod
    def of(cls, start: int, stop: int, tokens: Sequence[I32], fed_R: I64) -> Window:
        """Returns the window from ``start`` to ``stop`` of rollouts of which so many tokens are fed in all."""
        stop = min(stop, int(fed_R.max()))
        there = np.flatnonzero(fed_R > start)
        whole = [tokens[r][: min(stop, fed_R[r])] for r in there.tolist()]
        (part,) = pack(whole, sum(map(len, whole)))
        new_N = part.positions_N >= start
        number_N = np.cumsum(new_N) - 1
        nodes_RW = part.nodes_ST[:, start:stop]
        filled_RW = nodes_RW >= 0
        nodes_RW = np.where(filled_RW, number_N[nodes_RW], -1)
        # The first rollout of a pack that has a node is the one that added it.
        adds_N = np.full(int(new_N.sum()), len(there), dtype=np.int64)
        row_RW = np.broadcast_to(np.arange(len(there))[:, None], nodes_RW.shape)
        np.minimum.at(adds_N, nodes_RW[filled_RW], row_RW[filled_RW])
        rows_B, row_N = np.unique(adds_N, return_inverse=True)
        source_N = row_N * (stop - start) + part.positions_N[new_N] - start
        tokens_N, positions_N = part.tokens_N[new_N], part.positions_N[new_N]
        return cls(start, stop, there[part.members_S], np.maximum(nodes_RW, 0), rows_B, source_N, tokens_N, positions_N)


@dataclass(frozen=True, slots=True)
class WindowTokens:
    """The sampled tokens of one window.

    rollouts_Q  rollout of each
    steps_Q     its index among the rollout's output tokens
    hidden_UH   inputs of the LM head, each once
    row_Q       row of ``hidden_UH`` that each token follows
    """

    rollouts_Q: I64
    steps_Q: I64
    hidden_UH: Tensor
    row_Q: I64

    def logits(self, head: Any, head_dtype: torch.dtype) -> Iterator[tuple[I64, Tensor, I64]]:
        """Yields blocks: the tokens (of Q) that are in it, fp32 logits (U, V), and the row of logits of each token."""
        order, rows = np.argsort(self.row_Q, kind="stable"), max(LEAST_HEAD_ROWS, HEAD_LOGITS // len(head.weight))
        for first in range(0, len(self.hidden_UH), rows):
            start, stop = np.searchsorted(self.row_Q[order], [first, first + rows]).tolist()
            block_UH = self.hidden_UH[first : first + rows]
            several_UH = block_UH if len(block_UH) > 1 else block_UH.repeat(2, 1)
            logits_UV = logits_of(head, several_UH, head_dtype)[: len(block_UH)]
            for place in range(start, stop, rows):
                chosen = order[place : min(place + rows, stop)]
                yield chosen, logits_UV, self.row_Q[chosen] - first


def check_room(network: Any, rollouts: int, longest: int) -> None:
    """Checks that the windows of so many rollouts of up to ``longest`` fed tokens have room, before any is taken.

    Raises:
        Misconfigured: their keys and values exceed what this machine has for them.
    """
    wanted = rollouts * aligned(longest) * position_bytes(network)
    most = most_bytes(network.get_input_embeddings().weight.device)
    if wanted > most:
        raise Misconfigured(
            f"the keys and values of a job's {rollouts} rollouts of up to {longest} tokens take {wanted / 2**30:.1f} "
            f"GiB, more than this machine's {most / 2**30:.1f} GiB for them: choose a run with smaller jobs"
        )


class JobWindows:
    """The windows of one job, run in order; a window may be run again, until the next has begun.

    ``prompts_R`` are the lengths of the rollouts' prompts, ``width`` the positions of a window, and ``longest`` the
    most tokens that are fed of a rollout, for which memory is taken at most.
    """

    def __init__(self, network: Any, prompts_R: Sequence[int], width: int, longest: int) -> None:
        """Takes no memory for keys and values yet; raises as ``check_room`` does."""
        self.network, self.width, self.longest = network, width, longest
        self.device: torch.device = network.get_input_embeddings().weight.device
        self.prompts_R: I64 = np.array(prompts_R, dtype=np.int64)
        check_room(network, len(prompts_R), longest)
        self.states = _States(len(prompts_R), self.device, longest)

    def run(self, number: int, tokens: Sequence[I32], fed_R: I64) -> WindowTokens:
        """Runs a window of a job of which ``fed_R`` tokens of each rollout are fed in all.

        ``tokens`` are each rollout's tokens from the first on, at least up to the last that is fed in the window.
        """
        if fed_R.max() > self.longest:
            raise ValueError(f"invalid job of {fed_R.max()} fed tokens: expected at most {self.longest}")
        window = Window.of(number * self.width, (number + 1) * self.width, tokens, fed_R)
        self.states.begin(window)
        given = (torch.from_numpy(array).to(self.device) for array in (window.tokens_N, window.positions_N))
        hidden_NH = run_aligned(self.network.base_model, self.states, *given)[0][0][: len(window.tokens_N)]
        return self._sampled(window, fed_R[window.members_R], hidden_NH)

    def run_all(self, fed: Sequence[I32]) -> Iterator[WindowTokens]:
        """Runs every window of a finished job of which ``fed`` holds each rollout's fed tokens."""
        fed_R = np.array([len(tokens) for tokens in fed], dtype=np.int64)
        for number in range(-(-int(fed_R.max()) // self.width)):
            yield self.run(number, fed, fed_R)

    def _sampled(self, window: Window, fed_R: I64, hidden_NH: Tensor) -> WindowTokens:
        prompts_R = self.prompts_R[window.members_R]
        first_R = np.maximum(prompts_R - 1, window.start)
        count_R = np.maximum(np.minimum(fed_R, window.stop) - first_R, 0)
        which_Q = np.repeat(np.arange(len(count_R)), count_R)
        at_Q = np.arange(len(which_Q)) - np.repeat(np.cumsum(count_R) - count_R, count_R) + first_R[which_Q]
        nodes_U, row_Q = np.unique(window.nodes_RW[which_Q, at_Q - window.start], return_inverse=True)
        hidden_UH = hidden_NH[torch.from_numpy(nodes_U).to(self.device)]
        return WindowTokens(window.members_R[which_Q], at_Q - prompts_R[which_Q] + 1, hidden_UH, row_Q)


class _States:
    """Keys and values of a job's rollouts, of ``longest`` positions at most; also the attention layout of a window."""

    def __init__(self, rollouts: int, device: torch.device, longest: int) -> None:
        self._rollouts, self._device, self._longest = rollouts, device, longest
        self._keys_RKSD: dict[int, Tensor] = {}
        self._values_RKSD: dict[int, Tensor] = {}

    def of(self, rollout: int, length: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Returns keys and values (K, length, D) of a rollout's first positions, by layer."""
        return {
            layer: (keys_RKSD[rollout, :, :length], self._values_RKSD[layer][rollout, :, :length])
            for layer, keys_RKSD in self._keys_RKSD.items()
        }

    def clear(self) -> None:
        """Drops all keys and values."""
        self._keys_RKSD.clear()
        self._values_RKSD.clear()

    def begin(self, window: Window) -> None:
        """Prepares a window."""
        self._span, self._masks = (window.start, window.stop), dict[int | None, Tensor]()
        self._members_R, self._nodes_RW, self._rows_B, self._source_N = (
            torch.from_numpy(array).to(self._device)
            for array in (window.members_R, window.nodes_RW, window.rows_B, window.source_N)
        )
        self._queries_BW = self._nodes_RW[self._rows_B]
        self._attending_B = self._members_R[self._rows_B]
        self._all_attend = np.array_equal(window.members_R[window.rows_B], np.arange(self._rollouts))

    def attend(
        self, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Stores the window's keys and values, and returns each node's attention up to itself, (N, H, D)."""
        keys_BKSD, values_BKSD = (
            self._stored(held, layer, states_NKD)
            for held, states_NKD in ((self._keys_RKSD, key_NKD), (self._values_RKSD, value_NKD))
        )
        query_BHWD = query_NHD[self._queries_BW].transpose(1, 2)
        found_BHWD = attend_aligned(query_BHWD, keys_BKSD, values_BKSD, self._mask(window), scale)
        return found_BHWD.transpose(1, 2).flatten(0, 1)[self._source_N]

    def _stored(self, held: dict[int, Tensor], layer: int, states_NKD: Tensor) -> Tensor:
        (start, stop), (_, heads, depth) = self._span, states_NKD.shape
        have = held[layer].shape[2] if layer in held else 0
        if have < stop:
            columns = aligned(min(2 * stop, self._longest) if have else stop)
            grown = states_NKD.new_zeros(self._rollouts, heads, columns, depth)
            if have:
                grown[:, :, :have] = held[layer]
            held[layer] = grown
        held[layer][self._members_R, :, start:stop] = states_NKD[self._nodes_RW].transpose(1, 2)
        stored = held[layer][:, :, : aligned(stop)]  # zeros beyond what is stored, so that nothing is copied to pad it
        return stored if self._all_attend else stored.index_select(0, self._attending_B)

    def _mask(self, window: int | None) -> Tensor:
        """Returns which of the S columns each of the W queries sees, (W, S)."""
        if window not in self._masks:
            start, stop = self._span
            seen_WS = torch.ones(stop - start, stop, dtype=torch.bool, device=self._device).tril(start)
            self._masks[window] = seen_WS if window is None else seen_WS.triu(start + 1 - window)
        return self._masks[window]
