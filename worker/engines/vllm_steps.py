"""Results of the steps of vLLM's batch, sorted by request. Independent of vLLM.

Axes: B requests in the running batch, S sampled tokens of all requests, T those of one, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class BatchStep:
    """Results of one step: row b is token ``positions_B[b]`` of request ``requests_B[b]``."""

    requests_B: list[int]
    positions_B: list[int]
    tokens_B: torch.Tensor
    logprobs_B: torch.Tensor
    hidden_BH: torch.Tensor

    def on_cpu(self) -> BatchStep:
        """Returns the same step with its tensors on the CPU, to be sent to another process."""
        tensors = {name: getattr(self, name).cpu() for name in ("tokens_B", "logprobs_B", "hidden_BH")}
        return replace(self, **tensors)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One request's tokens (T,), their fp32 logprobs (T,) and bf16 LM-head inputs (T, H), all on the CPU."""

    tokens_T: torch.Tensor
    logprobs_T: torch.Tensor
    hidden_TH: torch.Tensor


@dataclass(slots=True)
class Recorder:
    """Collects the steps of one generation; ``hidden_BH`` is the latest input of the LM head."""

    hidden_BH: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    steps: list[BatchStep] = field(default_factory=list)

    def by_request(self, requests: int) -> list[Sampled]:
        """Returns the sampled tokens of every request, in order of requests.

        A token may have been sampled several times: a prompt that runs in pieces, or again after preemption, samples
        at the end of every piece. Only the last sample counts.
        """
        request_S = np.concatenate([step.requests_B for step in self.steps])
        position_S = np.concatenate([step.positions_B for step in self.steps])
        order_S = np.lexsort((np.arange(len(request_S)), position_S, request_S))
        request_S, position_S = request_S[order_S], position_S[order_S]
        last_S = np.append((np.diff(request_S) != 0) | (np.diff(position_S) != 0), True)
        kept, counts = torch.from_numpy(order_S[last_S]), np.bincount(request_S[last_S], minlength=requests).tolist()
        tokens, logprobs, hidden = (
            torch.split(torch.cat([getattr(step, name) for step in self.steps]).cpu()[kept], counts)
            for name in ("tokens_B", "logprobs_B", "hidden_BH")
        )
        return [Sampled(*parts) for parts in zip(tokens, logprobs, hidden, strict=True)]
