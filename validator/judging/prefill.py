"""One forward pass over whole sequences: margin, gap and logprob of every sampled token.

Nothing is padded, and prefixes that sequences share, above all a group's prompt, are run once (see
``protocol.tensor.packing``). The LM head runs once on each position followed by a sampled token. Logits are scored in
blocks as ``protocol.wire.sampling`` defines, z = l + T·G, so that margins are relative to an honest engine's choice.

Axes: S sampled tokens of all sequences one after another, N nodes of a pack, Q sampled tokens of a pack, R sampled
tokens of one block, U distinct nodes they follow, V vocabulary, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from eth_utils import keccak
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.attention import check_attention, run
from protocol.tensor.model import Model, logits_of
from protocol.tensor.noise import perturb
from protocol.tensor.packing import Pack, PackedLayout, pack
from protocol.tensor.windows import JobWindows, WindowTokens

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

MAX_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 16}
"""Nodes of one forward pass; beyond that its activations leave a CPU's cache."""

MAX_LOGITS = {"cpu": 1 << 18, "cuda": 1 << 27}
"""Logits scored at once in fp32: 1 MiB on a CPU, 512 MiB on a GPU. Scoring holds about three times as much."""


CANARY_TOKENS = 64
"""Length of the sequence that a canary is of."""


class Numerics(NamedTuple):
    """Conditions of a prefill's bits, beside its tokens and the policy.

    engine  software, device and number format
    canary  keccak of the policy's hidden states over a fixed sequence
    """

    engine: str
    canary: bytes


@dataclass(frozen=True, slots=True)
class Completed:
    """One sequence to check: prompt (P,) and output (T,) token ids, and the Philox key of its noise."""

    prompt_tokens: I32
    output_tokens: I32
    noise_key: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prefill:
    """Scores of S sampled tokens, in the order of the N sequences, ``lengths_N`` tokens each.

    margins_S   logits by which each token is behind the seeded choice, 0 if it is that choice
    gaps_S      logits between the seeded choice and the runner-up
    logprobs_S  natural log of each token's probability at the rules' temperature
    chosen_S    the seeded choice
    leads_S     raw logits by which each token is likelier than the seeded choice, 0 if it is that choice
    hidden_SH   inputs of the LM head, bf16
    """

    lengths_N: NDArray[np.int64]
    margins_S: F32
    gaps_S: F32
    logprobs_S: F32
    chosen_S: I32
    leads_S: F32
    hidden_SH: torch.Tensor

    def slice(self, start: int, stop: int) -> Prefill:
        """Returns the scores of sequences ``start`` to ``stop``."""
        lengths_N, *by_token = (getattr(self, each.name) for each in fields(self))
        rows = slice(int(lengths_N[:start].sum()), int(lengths_N[:stop].sum()))
        return Prefill(lengths_N[start:stop], *(column[rows] for column in by_token))


def prefill(model: Model, sequences: Sequence[Completed], temperature: float, head_dtype: torch.dtype) -> Prefill:
    """Runs the policy over every sequence; raises ``Unavailable`` if its scores are not finite."""
    lengths_N = np.array([len(sequence.output_tokens) for sequence in sequences], dtype=np.int64)
    # The last token is not an input: nothing was sampled after it.
    fed = [np.concatenate([one.prompt_tokens, one.output_tokens[:-1]]) for one in sequences]
    scores = Scores(model, sequences, lengths_N, temperature, head_dtype)
    with torch.inference_mode():
        for part in pack(fed, MAX_TOKENS[scores.device.type]):
            layout = PackedLayout.of(part, scores.device)
            output = run(model.network.base_model, layout, *part.inputs(scores.device))
            scores.add(part, output[0][0])
    return scores.result()


def prefill_exactly(
    model: Model, jobs: Sequence[Sequence[Completed]], width: int, temperature: float, head_dtype: torch.dtype
) -> Prefill:
    """Runs the windows of every job (see ``protocol.tensor.windows``); raises as ``prefill`` does.

    The scores are in the order of the jobs' sequences, and their bits those of a worker on the same kernels.
    """
    sequences = [sequence for job in jobs for sequence in job]
    lengths_N = np.array([len(sequence.output_tokens) for sequence in sequences], dtype=np.int64)
    scores = Scores(model, sequences, lengths_N, temperature, head_dtype)
    first = 0
    with torch.inference_mode():
        for job in jobs:
            fed = [np.concatenate([one.prompt_tokens, one.output_tokens[:-1]]) for one in job]
            prompts = [len(one.prompt_tokens) for one in job]
            windows = JobWindows(model.network, prompts, width, max(map(len, fed)))
            for sampled in windows.run_all(fed):
                scores.add_window(first, sampled)
            first += len(job)
    return scores.result()


def probe(model: Model) -> None:
    """Checks that packed sequences get the logits that the model gives each of them alone.

    Raises:
        Misconfigured: the model changes logits after its LM head, which version 1 rules exclude, or its logits depend
            on the other sequences of a pack.
    """
    check_attention(model.network)
    vocabulary = model.network.config.vocab_size
    sequences = [torch.arange(first, first + 6).remainder(vocabulary).int() for first in (0, 0, 3)]
    sequences[1] = torch.cat([sequences[1][:3], sequences[2][:2]])
    with torch.inference_mode():
        (part,) = pack([sequence.numpy() for sequence in sequences], 64)
        device = _device(model)
        hidden_NH = run(model.network.base_model, PackedLayout.of(part, device), *part.inputs(device))[0][0]
        ours_NV = model.network.get_output_embeddings()(hidden_NH)
        for member, nodes_T in zip(part.members_S, part.nodes_ST, strict=True):
            tokens_1T = sequences[member][None].long().to(device)
            theirs_TV = model.network(input_ids=tokens_1T, use_cache=False).logits[0]
            ours_TV = ours_NV[torch.from_numpy(nodes_T[nodes_T >= 0]).to(device)]
            if not torch.allclose(ours_TV.float(), theirs_TV.float(), atol=2e-2, rtol=2e-2):
                raise Misconfigured(
                    "unsupported model: its logits differ from its LM head's output, or change with batching; "
                    "rules of version 1 need raw logits"
                )


def numerics_of(model: Model) -> Numerics:
    """Returns the engine that ``model`` runs on, and its canary under the model's present weights."""
    device, vocabulary = _device(model), model.network.config.vocab_size
    tokens = np.arange(CANARY_TOKENS, dtype=np.int32) * 7919 % vocabulary
    with torch.inference_mode():
        (part,) = pack([tokens], CANARY_TOKENS)
        hidden_NH = run(model.network.base_model, PackedLayout.of(part, device), *part.inputs(device))[0][0]
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    dtype = str(hidden_NH.dtype).removeprefix("torch.")
    engine = f"transformers, torch {torch.__version__}, {device.type} {kind}, {dtype}"
    return Numerics(engine, keccak(hidden_NH.contiguous().cpu().view(torch.uint8).numpy().tobytes()))


def _device(model: Model) -> torch.device:
    device: torch.device = model.network.get_input_embeddings().weight.device
    return device


class Scores:
    """Scores of S sampled tokens, filled pack by pack; the four numbers are margin, gap, logprob and lead."""

    def __init__(
        self, model: Model, sequences: Sequence[Completed], lengths_N: I64, temperature: float, head_dtype: torch.dtype
    ) -> None:
        self.device, self.head = _device(model), model.network.get_output_embeddings()
        self.temperature, self.head_dtype = temperature, head_dtype
        self.prompts, self.lengths = [len(one.prompt_tokens) for one in sequences], lengths_N
        self.starts = np.cumsum(lengths_N) - lengths_N
        total = int(lengths_N.sum())
        self.keys_S2 = np.repeat(np.array([one.noise_key for one in sequences], dtype=np.int64), lengths_N, axis=0)
        self.positions_S = np.arange(total) - np.repeat(self.starts, lengths_N)
        self.tokens_S = np.concatenate([one.output_tokens for one in sequences]).astype(np.int64)
        self.numbers_4S = np.empty((4, total), dtype=np.float32)
        self.chosen_S = np.empty(total, dtype=np.int32)
        self.hidden_SH = torch.empty(total, self.head.weight.shape[1], dtype=torch.bfloat16)

    def add(self, part: Pack, hidden_NH: torch.Tensor) -> None:
        """Scores the sampled tokens of a pack's sequences; ``hidden_NH`` are the LM head inputs of its nodes."""
        places, nodes = self._sampled(part)
        self.hidden_SH[torch.from_numpy(places)] = hidden_NH[self._there(nodes)].to("cpu", torch.bfloat16)
        # Sorted by the node they follow: tokens after the same node are scored from the same logits.
        order = np.argsort(nodes, kind="stable")
        step = max(1, MAX_LOGITS[self.device.type] // self.head.weight.shape[0])
        for start in range(0, len(order), step):
            chosen = order[start : start + step]
            different_U, row_R = np.unique(nodes[chosen], return_inverse=True)
            logits_UV = logits_of(self.head, hidden_NH[self._there(different_U)], self.head_dtype)
            self.score(places[chosen], logits_UV, self._there(row_R) if len(different_U) < len(chosen) else None)

    def add_window(self, first: int, sampled: WindowTokens) -> None:
        """Scores the sampled tokens of a window of a job whose first sequence is number ``first``."""
        places = self.starts[first + sampled.rollouts_Q] + sampled.steps_Q
        hidden_QH = sampled.hidden_UH[self._there(sampled.row_Q)]
        self.hidden_SH[torch.from_numpy(places)] = hidden_QH.to("cpu", torch.bfloat16)
        for chosen, logits_UV, row_R in sampled.logits(self.head, self.head_dtype):
            self.score(places[chosen], logits_UV, self._there(row_R))

    def result(self) -> Prefill:
        """Returns the scores; raises ``Unavailable`` if they are not finite."""
        if not np.isfinite(self.numbers_4S).all():
            raise Unavailable("the policy's logits are not finite: the juror abstains")
        margins_S, gaps_S, logprobs_S, leads_S = self.numbers_4S
        return Prefill(self.lengths, margins_S, gaps_S, logprobs_S, self.chosen_S, leads_S, self.hidden_SH)

    def _sampled(self, part: Pack) -> tuple[I64, I64]:
        """Indices (Q,) of the sampled tokens of a pack's sequences, and the node that each follows."""
        places, nodes = [], []
        for member, nodes_T in zip(part.members_S.tolist(), part.nodes_ST, strict=True):
            length, last = self.lengths[member], self.prompts[member] - 1
            places.append(np.arange(self.starts[member], self.starts[member] + length))
            nodes.append(nodes_T[last : last + length])
        return np.concatenate(places), np.concatenate(nodes)

    def _there(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def score(self, places_R: I64, logits_UV: torch.Tensor, row_R: torch.Tensor | None) -> None:
        """Scores one block; ``row_R`` maps each token to its row of logits.

        None: row i belongs to token i, and the logits are overwritten.
        """
        tokens_R = self._there(self.tokens_S[places_R])
        scale = self.temperature or 1.0
        logprobs_UV = (logits_UV / scale).log_softmax(-1)
        if row_R is None:
            row_R, scores_RV = torch.arange(len(tokens_R), device=self.device), logits_UV
        else:
            scores_RV = logits_UV[row_R]
        keys_R2, positions_R = self._there(self.keys_S2[places_R]), self._there(self.positions_S[places_R])
        temperature_R = torch.full(tokens_R.shape, self.temperature, device=self.device)
        scores_RV = perturb(scores_RV, keys_R2, positions_R, temperature_R)
        best_R, chosen_R = scores_RV.max(-1)
        margins_R = best_R - scores_RV.gather(1, tokens_R[:, None])[:, 0]
        gaps_R = best_R - scores_RV.scatter_(1, chosen_R[:, None], -torch.inf).amax(-1)
        logprobs_R = logprobs_UV[row_R, tokens_R]
        leads_R = scale * (logprobs_R - logprobs_UV[row_R, chosen_R])
        self.numbers_4S[:, places_R] = torch.stack([margins_R, gaps_R, logprobs_R, leads_R]).cpu().numpy()
        self.chosen_S[places_R] = chosen_R.cpu().numpy()
