"""The engines with tokens left to chance, as they sample by themselves: what seeding is measured against.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from protocol.tensor.completions import Request, Sampler
from protocol.tensor.decode import decode
from worker.engines.engine import Engine


class Chance(Sampler):
    """What transformers' own generation does: a draw from the softmax."""

    def choose(self, logits_BV: torch.Tensor, logprobs_BV: torch.Tensor) -> torch.Tensor:
        """Returns a random token of each row; the temperature is 1."""
        return torch.multinomial(logits_BV.softmax(-1), 1)[:, 0]


def own_sampling(name: str, engine: Engine, directory: Path, rows: int) -> Callable[[Sequence[Request]], int]:
    """Returns what completes requests by the engine's own random sampling, and counts the tokens."""
    if name == "transformers":
        return lambda requests: sum(
            len(done.output_tokens) for done in decode(engine.model.network, requests, sampler=Chance)
        )
    internals: Any = importlib.import_module("worker.engines.vllm_internals")

    class Idle(internals.SeededSampling):  # type: ignore[misc]
        """Leaves the choice to vLLM."""

        def is_argmax_invariant(self) -> bool:
            return True

        def update_state(self, batch_update: object) -> None:
            pass

        def apply(self, logits_BV: torch.Tensor) -> torch.Tensor:
            return logits_BV

    class Own(internals.Core):  # type: ignore[misc]
        processor = Idle

        def add(self, name: str, number: int, prompt_tokens: Sequence[int], *rest: Any) -> None:
            _key, temperature, most, _stop = rest
            params = internals.SamplingParams(
                temperature=temperature, max_tokens=most, ignore_eos=True, detokenize=False, seed=None
            )
            (prompt,) = self.engine.renderer.render_cmpl([{"prompt_token_ids": list(prompt_tokens)}])
            self.engine.add_request(name, prompt, params)

    core = Own(directory, "float32", max(rows, 1), 1 << 30)

    def complete(requests: Sequence[Request]) -> int:
        for n, one in enumerate(requests):
            core.add(str(n), n, one.prompt_tokens, one.noise_key, one.temperature, one.max_tokens, one.stop_tokens)
        tokens, left = 0, len(requests)
        while left:
            for _, output in core.step():
                tokens, left = tokens + len(output), left - 1
        return tokens

    return complete
