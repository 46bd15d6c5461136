"""The vLLM engine: continuous batching and paged attention, with the seeded choice in vLLM's own sampler."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import torch

from protocol.errors import Misconfigured, Unavailable
from protocol.tensor.completions import Completion, Request
from protocol.tensor.directory import check_model_directory
from protocol.tensor.model import Model, check_tensors, load_tokenizer
from protocol.wire.pins import UnfitCheckpoint, tensors_in
from worker.engines.vllm_steps import Sampled

if TYPE_CHECKING:
    from worker.engines.vllm_internals import Core

MAX_ROWS = 256
"""vLLM's own default on a large accelerator."""

CPU_CACHE_BYTES = 1 << 30


class VllmEngine:
    """Implements ``worker.engines.engine.Engine``.

    Args:
        dtype: number format of the run's rules.
        device: "cpu" or "cuda".
        max_rows: requests that run at once; the others wait.
        cache_bytes: size of the key-value cache; None takes 1 GiB on a CPU, nine tenths of the free memory on an
            accelerator.
        tensor_parallel: devices over which each layer is divided.
        pipeline_parallel: groups of such devices through which the layers go in turn.
    """

    def __init__(
        self,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str = "cpu",
        max_rows: int = MAX_ROWS,
        cache_bytes: int | None = None,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
    ) -> None:
        """Imports vLLM, which takes about ten seconds.

        Raises:
            Misconfigured: another version of vLLM is installed than this engine was tested with.
        """
        _internals().check_version()
        self._dtype, self._max_rows = dtype, max_rows
        self._cache_bytes = CPU_CACHE_BYTES if cache_bytes is None and device == "cpu" else cache_bytes
        self._parallel = tensor_parallel, pipeline_parallel
        self._model: Model | None = None
        self._core: Core | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._calls = itertools.count()
        self.canary = bytes(32)

    @property
    def model(self) -> Model:
        """Tokenizer and stop token of the loaded model. Its ``network`` is None: vLLM holds its own."""
        if self._model is None:
            raise Misconfigured("no model loaded: load a model directory first")
        return self._model

    def load(self, directory: Path) -> None:
        """Loads a model directory."""
        check_model_directory(directory)
        check_tensors(directory)
        tokenizer, shapes = load_tokenizer(directory), _shapes(directory)
        self.close()
        self._core = _internals().Core(directory, self._dtype, self._max_rows, self._cache_bytes, *self._parallel)
        self._shapes, self._model = shapes, Model(None, tokenizer, tokenizer.eos_token_id)

    def read_ahead(self, directory: Path) -> None:
        """Does nothing: the engine core, in a process of its own, loads weights from files only."""

    def swap(self, directory: Path) -> None:
        """Loads the weights of another version, in place. Checks shapes first: a partial swap cannot be undone."""
        if self._core is None:
            self.load(directory)
            return
        if _shapes(directory) != self._shapes:
            raise UnfitCheckpoint(f"{directory} does not hold the tensors of the model that is loaded")
        self._core.reload(directory)

    def hidden_states(self, request: Request, output_tokens: Sequence[int]) -> torch.Tensor:
        """Returns the LM head's input before each output token, (T, H) in the engine's dtype, by one prefill."""
        if self._core is None:
            raise Misconfigured("no model loaded: load a model directory first")
        fed = [*request.prompt_tokens, *output_tokens[:-1]]
        return self._core.hidden_states(fed)[len(request.prompt_tokens) - 1 : len(fed)]

    def close(self) -> None:
        """Frees weights and cache. ``load`` may be called again."""
        if self._core is not None:
            self._core.close()
        self._core = self._model = None

    def generate(self, requests: Sequence[Request], cancel: Event | None = None) -> list[Completion]:
        """Completes every request, in order."""
        if self._core is None:
            raise Misconfigured("no model loaded: load a model directory first")
        if not requests:
            return []
        outputs = self._run(self._core, requests, cancel or Event())
        sampled = self._core.sampled(len(requests))
        return [_completion(*parts) for parts in zip(requests, outputs, sampled, strict=True)]

    def _run(self, core: Core, requests: Sequence[Request], cancel: Event) -> list[list[int]]:
        """Steps until all requests are complete; removes unfinished ones from vLLM if that ends early."""
        call = next(self._calls)
        numbers = {f"{call}-{number}": number for number in range(len(requests))}
        outputs: list[list[int]] = [[]] * len(requests)
        core.forget()
        try:
            for name, number in list(numbers.items()):
                self._add(core, name, number, requests[number])
            while numbers:
                if cancel.is_set():
                    raise Unavailable("generation was cancelled")
                for name, tokens in core.step():
                    outputs[numbers.pop(name)] = tokens
        finally:
            core.abort(list(numbers))
        return outputs

    def _add(self, core: Core, name: str, number: int, request: Request) -> None:
        longest = len(request.prompt_tokens) + request.max_tokens
        if longest > core.max_tokens:
            raise Misconfigured(
                f"a prompt of {len(request.prompt_tokens)} tokens and a completion of {request.max_tokens} exceed the "
                f"{core.max_tokens} positions of this model: use another engine for this run"
            )
        core.add(
            name,
            number,
            request.prompt_tokens,
            request.noise_key,
            request.temperature,
            request.max_tokens,
            request.stop_tokens,
        )


def _internals() -> ModuleType:
    return importlib.import_module("worker.engines.vllm_internals")


def _completion(request: Request, output: Sequence[int], sampled: Sampled) -> Completion:
    tokens = tuple(sampled.tokens_T.tolist())
    if tokens != tuple(output):
        raise RuntimeError("vLLM's tokens differ from the argmax of its scores")
    reason: Literal["stop", "length"] = "stop" if tokens[-1] in request.stop_tokens else "length"
    return Completion(tokens, sampled.logprobs_T, sampled.hidden_TH, reason)


def _shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every tensor of a model directory, by name."""
    return {name: tensor.shape for held in tensors_in(directory).values() for name, tensor in held.items()}
